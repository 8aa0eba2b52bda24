"""Predicted speed of the GPU kernels from their machine code, without a GPU.

    python -m lockstep.experiments.bench.machine_code [--target sm_90] [--write envs/kernels/README.md]

A kernel is compiled with the numbers of its lines and disassembled by nvdisasm. Instructions between two jumps run
together; how often they do in a warp and step follows from the lines that most of them come from, by REGIONS. The issue
slots of the GPU over the instructions issued are the predicted rate.
"""

import argparse
import collections
import functools
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lockstep import envs
from lockstep.envs.kernels import compile

MARKS = ("<!-- predicted: begin -->", "<!-- predicted: end -->")


class Machine(NamedTuple):
    """A GPU as its data sheet and the table of compute capabilities in the CUDA C++ Programming Guide have it."""

    title: str
    multiprocessors: int
    clock_hz: float  # boost
    bandwidth: float  # bytes/s that a copy is assumed to reach, some 83 % of the data sheet's
    shared_bytes: int  # of a multiprocessor
    schedulers: int = 4  # of a multiprocessor, each with a quarter of its registers
    registers: int = 65536  # of a multiprocessor
    threads: int = 2048
    blocks: int = 32


MACHINES = {
    "sm_80": Machine("A100", 108, 1.41e9, 1.7e12, 164 * 1024),
    "sm_90": Machine("H200", 132, 1.98e9, 4.0e12, 228 * 1024),
}
ISSUED_SHARE = (0.60, 0.75)  # of the issue slots, assumed
WARP, INSTRUCTION_BYTES, RESERVED_SHARED = 32, 16, 1024
STEPS = 128  # K of a roll-out
ENVS = 2048  # in the batch whose ends of episodes are counted
NETWORK_BYTES = 12  # that a trajectory of an MLP has besides: log_prob, value, bootstrap

# Kernels that are compiled: of a unit (the first of these that there is, or the first of all) those whose names
# match; of environments that one lane holds, and several.
CASES = {
    "one lane": [
        (("view", "copy"), r"step_(uint8|float32)"),
        (("copy",), r"rollout_random_(statistics|trajectory)"),
        (("mlp",), r"rollout_mlp_trajectory"),
    ],
    "several lanes": [(("copy",), r"step|rollout_random")],
}
DEFAULT = ("SameStep", "float32")  # mode and dtype of these units


class Region(NamedTuple):
    """A stretch of source: from a line that matches to the end of its statement."""

    function: str  # whose text has it; "" is any
    line: str
    times: str  # a name of `rates`; the products where regions lie in one another
    loop: bool = False  # counts only where the machine code has a loop: what moved out in front of it runs once


REGIONS = [
    Region("span_of", r"if \(.*\bb\.tiles\b", "never"),
    Region("", r"\bif \(ended\b", "ended"),
    Region("add_to_tile", r"if \(__popc", "never"),
    Region("add_to_tile", r"^ +episodes\.store", "ended"),
    Region("rollout_tile", r"FN void rollout_tile", "once"),
    Region("rollout_tile", r"for \(\w+ k = 0;", "every step", loop=True),
    Region("rollout_tile", r"if \(.*FETCH_EVERY", "fetch"),
    Region("", r"if \(.*\bt % PER_BLOCK == 0", "words"),
    Region("", r"if \(.*\bt % PER_WORD == 0", "turns"),
    Region("rollout_tile", r"if \((CARRIES \|\| )?episode != fetched\)", "never"),
    Region("rollout_tile", r"if \(narrow\)", "never"),
    Region("rollout_tile", r"if \(.*truncated.* && !.*terminated.*\) \{", "cut"),
    Region("network", r"for \(int j = 0; j < HIDDEN; j \+= 4\)", "units", loop=True),
]


# ---- source ---------------------------------------------------------------------------------------------------------


def extent(lines: list[str], start: int) -> int:
    """The line on which the statement ends that begins on line `start`, or the block around it."""
    depth = 0
    for number in range(start, len(lines)):
        for sign in re.sub(r"//.*|'.'|\"[^\"]*\"", "", lines[number]):
            depth += (sign in "({") - (sign in ")}")
            if depth < 0 or (depth == 0 and sign in ";}"):
                return number
    return start


class Line(NamedTuple):
    """The regions around what a line says itself, and around what it calls; outer ones first."""

    own: list[Region]
    called: list[Region]


def regions_of(text: str) -> list[Line]:
    """The regions that each line of a unit lies in.

    A condition is asked whatever the answer, so it does not belong to what hangs on it: of a line with both, that is
    what is called. One of two questions does, as the second hangs on the first.
    """
    lines = text.split("\n")
    found = [Line([], []) for _ in lines]
    for head, line in enumerate(lines):
        named = re.match(r"\s*(?:FN|static)\b[^;]*?(\w+)\([^;]*\{$", line)
        last = extent(lines, head) if named else head
        for number in range(head, last + 1) if named else ():
            for region in REGIONS:
                if region.function in ("", named[1]) and re.search(region.line, lines[number]):
                    ending = extent(lines, number)
                    asked = not region.loop and "&&" not in lines[number]
                    for inside in range(number, ending + 1):
                        if not asked or inside > number:
                            found[inside].own.append(region)
                        if not asked or inside > number or ending == number:
                            found[inside].called.append(region)
    return found


# ---- machine code ---------------------------------------------------------------------------------------------------


def sections(binary: bytes) -> dict[str, bytes]:
    """Contents of an ELF file's sections by name."""
    table = struct.unpack_from("<Q", binary, 40)[0]
    size, count, names = struct.unpack_from("<3H", binary, 58)
    heads = [struct.unpack_from("<II16xQQ", binary, table + k * size) for k in range(count)]
    text = binary[heads[names][2] :]
    return {text[at : text.index(b"\0", at)].decode(): binary[begin : begin + long] for at, _, begin, long in heads}


def instructions(code: bytes) -> int:
    """The number of instructions of a kernel, without the jump to itself and the empty ones that fill up its end."""
    opcodes = [word & 0xFFF for (word,) in struct.iter_unpack("<Q8x", code)]
    while opcodes[-1] == 0x918:  # NOP
        opcodes.pop()
    return len(opcodes) - (opcodes[-1] == 0x947)  # BRA


def bound(attributes: bytes) -> int:
    """The most threads of a block that a kernel was compiled for, by the section of its attributes."""
    at = 0
    while at < len(attributes):
        kind, name, size = struct.unpack_from("<BBH", attributes, at)
        if (kind, name) == (4, 5):
            return struct.unpack_from("<I", attributes, at + 4)[0]
        at += 4 + (size if kind == 4 else 0)
    return 0


def constant(binary: bytes, name: str) -> int | None:
    """The value of an 8-byte integer constant of a unit, None where it has none of that name."""
    parts = sections(binary)
    names, values = parts[".strtab"], [part for name, part in parts.items() if name.startswith(".nv.constant3")]
    for at, value in ((entry[0], entry[1]) for entry in struct.iter_unpack("<I4xQ8x", parts[".symtab"])):
        if names[at : names.index(b"\0", at)].decode() == name:
            return struct.unpack_from("<q", values[0], value)[0]
    return None


def with_lines(text: str, target: str) -> tuple[bytes, str]:
    """A unit's binary with the numbers of its own lines, not of the files they were put in from, and the report."""
    binding = compile.nvrtc()
    program = binding.createProgram(flat(text), "unit.cu", (), ())
    flags = (f"--gpu-architecture={target}", "--ptxas-options=-v", "--generate-line-info")
    binding.compileProgram(program, (*compile.NVRTC_FLAGS, *flags))
    return binding.getCUBIN(program) + b"\0", binding.getProgramLog(program)


def flat(text: str) -> str:
    return re.sub(r"^#line .*$", "", text, flags=re.MULTILINE)


def disassembler() -> str:
    """The path of nvdisasm.

    Raises:
        SystemExit: there is none; says where to get it.
    """
    homes = [f"{home}/bin" for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    folders = [os.environ.get("PATH", ""), *homes, *(f"{path}/triton/backends/nvidia/bin" for path in sys.path)]
    found = shutil.which("nvdisasm", path=os.pathsep.join(folders))
    if not found:
        sys.exit("no nvdisasm on PATH, in CUDA_HOME or in an installed triton (pip install triton brings one)")
    return found


def listings(binary: bytes) -> dict[str, str]:
    """Each kernel's disassembly with the lines that its instructions come from."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [disassembler(), "-c", "-gi", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^\.text\.(\w+):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


class Block(NamedTuple):
    """Instructions that run together."""

    lines: list[tuple[int, ...]]  # that each comes from: innermost call first
    depth: int  # of loops around it


def blocks(listing: str) -> list[Block]:
    """The blocks of a kernel's listing, without slow paths.

    A slow path begins with a call, which only those of divisions and roots have, and ends at the next label; what is
    called follows the kernel's own code under a name that begins with a dollar sign.
    """
    found: list[list[tuple[int, ...]]] = [[]]
    labels, jumps, slow = {}, [], set()
    chain, fresh, calling = (), True, False
    for line in listing.split("\n"):
        if place := re.match(r'\s*//## File "[^"]*", line (\d+)', line):
            chain, fresh = (*(() if fresh else chain), int(place[1])), False
        elif code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d\s+)?(\w+)(.*)", line):
            fresh = True
            found[-1].append(chain)
            calling |= code[1] == "CALL"
            if calling:
                slow.add(len(found) - 1)
            if jump := re.search(r"`\((\.L_\w+)\)", code[2]) if code[1] == "BRA" else None:
                jumps.append((len(found) - 1, jump[1]))
            if code[1] in ("BRA", "EXIT", "CALL"):
                found.append([])
        elif line.startswith("$"):
            break
        elif label := re.match(r"(\.L_\w+):", line):
            calling = False
            found.append([])
            labels[label[1]] = len(found) - 1
    loops = [(labels[label], end) for end, label in jumps if label in labels and labels[label] <= end]
    heads = {begin: max(end for other, end in loops if other == begin) for begin, _ in loops}
    return [
        Block(block, sum(begin <= number <= end for begin, end in heads.items()))
        for number, block in enumerate(found)
        if block and number not in slow
    ]


def issued(listing: str, regions: list[Line], rates: dict[str, float]) -> float:
    """Instructions that a warp issues in a step: each block's as often as most of them would run by their lines."""

    def times(chain: tuple[int, ...], depth: int) -> float:
        around = [region for line in chain[:0:-1] for region in regions[line - 1].called]
        around += regions[chain[0] - 1].own
        loops = [region for region in around if region.loop][:depth]
        return math.prod(rates[region.times] for region in [*loops, *(one for one in around if not one.loop)])

    def of_block(block: Block) -> float:
        votes = collections.Counter(times(chain, block.depth) for chain in block.lines)
        return len(block.lines) * votes.most_common(1)[0][0]

    return sum(map(of_block, blocks(listing)))


# ---- what the numbers mean ------------------------------------------------------------------------------------------


def occupancy(machine: Machine, threads: int, registers: int, shared: int) -> int:
    """Blocks that a multiprocessor holds at a time.

    A warp's registers come by 256 and lie at one scheduler; shared memory comes by 128 bytes, 1,024 of them reserved.
    """
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // 256) * 256
    by_registers = machine.registers // machine.schedulers // of_warp * machine.schedulers // warps
    by_shared = machine.shared_bytes // (-(-(shared + RESERVED_SHARED) // 128) * 128)
    return min(by_registers, by_shared, machine.threads // (warps * WARP), machine.blocks)


def predicted(machine: Machine, issued: float, step_bytes: float) -> tuple[float, float, str]:
    """Steps/s of a batch that fills the GPU, from and to, and what binds."""
    slots = machine.multiprocessors * machine.schedulers * machine.clock_hz * WARP / issued
    memory = machine.bandwidth / step_bytes
    low, high = (min(share * slots, memory) for share in ISSUED_SHARE)
    return low, high, "issue" if high < memory else "memory" if low == memory else "issue, memory"


@functools.cache
def ends(name: str, fetch: int) -> dict[str, float]:
    """Ends of episodes under the random policy, counted on the CPU over two horizons after a first one.

    Returns:
        Shares: "ended", "cut" of warps and steps in which a lane's episode ends, or is only cut off; "fetched" of warps
        that have an end within the steps of a fetch.
    """
    env = envs.make(name, ENVS)
    env.reset(seed=0)
    steps = -(-env.max_episode_steps // fetch) * fetch
    env.rollout(steps)
    ended, cut = [], []
    for _ in range(2):
        rows = env.rollout(steps, store="trajectory")
        down, late = (rows[key].numpy().copy() for key in ("terminated", "truncated"))
        ended.append(down | late)
        cut.append(late & ~down)
    ended, cut = np.concatenate(ended), np.concatenate(cut)
    by_warp = ended.reshape(len(ended), -1, WARP).any(2)
    shares = {
        "ended": by_warp.mean(),
        "fetched": by_warp.reshape(-1, fetch, by_warp.shape[1]).any(1).mean(),
        "cut": cut.reshape(len(cut), -1, WARP).any(2).mean(),
    }
    return {key: float(share) for key, share in shares.items()}


def rates(name: str, text: str) -> dict[str, float]:
    """The times that each kind of region of a unit runs in a warp and step."""
    declared = envs.port(name)
    hidden, fetch = (number_in(text, word) for word in ("define HIDDEN", "FETCH_EVERY ="))
    of_a_word = 1 if declared.continuous else 32 if declared.of("action").n == 2 else 2
    found = ends(name, fetch)
    return found | {
        "every step": STEPS,
        "once": 1 / STEPS,
        "fetch": found["fetched"] / fetch,
        "words": 1 / (4 * of_a_word),
        "turns": 1 / of_a_word,
        "units": hidden / 4,
        "never": 0,
    }


def number_in(text: str, words: str) -> int:
    """The number that follows words in a text, 0 where they do not occur."""
    found = re.search(rf"{words} (\d+)", text)
    return int(found[1]) if found else 0


def step_bytes(name: str, kernel: str, kind: str) -> float:
    """Bytes that a step of an environment reads and writes; fused steps that keep no trajectory share those of one."""
    env = envs.make(name, ENVS, **({"obs": "view"} if kind == "view" else {}))
    if "trajectory" not in kernel:
        return env.bytes_per_step / (STEPS if "rollout" in kernel else 1)
    rows = env.rollout_buffers(STEPS)
    return sum(row.nbytes for row in rows.values()) / (STEPS * ENVS) + (NETWORK_BYTES if "mlp" in kernel else 0)


def launch_form(name: str) -> str:
    """The key of an environment's cases."""
    return "one lane" if envs.port(name).of("lanes") == 1 else "several lanes"


def unit_of(name: str, kinds: Sequence[str]) -> tuple[str, str]:
    """The first of these kinds of unit that an environment has, or else the first that it lists; and its text."""
    units = {kind: text for (mode, dtype, kind), text in envs.units(name).items() if (mode, dtype) == DEFAULT}
    kind = next((kind for kind in kinds if kind in units), next(iter(units)))
    return kind, units[kind]


def rows_of(target: str, names: Sequence[str] | None = None, disassembled: bool = True) -> list[dict]:
    """One row for each kernel of CASES, of every environment or of those named.

    disassembled: with the instructions issued, for which nvdisasm is needed, and the rate.
    """
    machine, rows = MACHINES[target], []
    for name in names or envs.names():
        for kinds, pattern in CASES[launch_form(name)]:
            kind, text = unit_of(name, kinds)
            for kernel, counts in counted(name, text, pattern, target, disassembled).items():
                blocks = occupancy(machine, *(counts[key] for key in ("threads", "registers", "shared")))
                counts |= {"blocks": blocks, "warps": blocks * counts["threads"] // WARP}
                if counts["issued"]:
                    low, high, binds = predicted(machine, counts["issued"], step_bytes(name, kernel, kind))
                    counts |= {"low": low, "high": high, "binds": binds}
                rows.append({"environment": name, "kernel": kernel} | counts)
    return rows


def counted(name: str, text: str, pattern: str, target: str, disassembled: bool) -> dict[str, dict]:
    """Instructions, registers, shared memory, spills, threads and instructions issued of the kernels that match."""
    binary, report = with_lines(text, target)
    parts, regions = sections(binary), regions_of(flat(text))
    listing = listings(binary) if disassembled and launch_form(name) == "one lane" else {}
    found = {}
    for part in report.split("Compiling entry function ")[1:]:
        kernel = re.match(r"'(\w+)'", part)[1]
        if not re.fullmatch(pattern, kernel):
            continue
        threads = bound(parts[f".nv.info.{kernel}"])
        found[kernel] = {
            "instructions": instructions(parts[f".text.{kernel}"]),
            "registers": number_in(part, "Used"),
            "shared": bytes_in(part, "smem") + (constant(binary, "scratch_bytes") or 0),
            "spills": bytes_in(part, "spill stores"),
            "threads": threads,
            "issued": issued(listing[kernel], regions, rates(name, text)) if listing else None,
        }
    return dict(sorted(found.items()))


def bytes_in(report: str, words: str) -> int:
    found = re.search(rf"(\d+) bytes {words}", report)
    return int(found[1]) if found else 0


# ---- table ----------------------------------------------------------------------------------------------------------


def billions(row: dict) -> str:
    if "low" not in row:
        return "–"
    low, high = (f"{rate:.0f}" if rate >= 9.95 else f"{rate:.1f}" for rate in (row["low"] / 1e9, row["high"] / 1e9))
    return low if low == high else f"{low}–{high}"


COLUMNS = {
    "instructions": lambda row: f"{row['instructions']:,}",
    "registers": lambda row: str(row["registers"]),
    "shared, bytes": lambda row: f"{row['shared']:,}",
    "spills": lambda row: str(row["spills"]),
    "blocks": lambda row: str(row["blocks"]),
    "warps": lambda row: str(row["warps"]),
    "issued": lambda row: f"{row['issued']:,.0f}" if row["issued"] else "–",
    "10⁹ steps/s": billions,
    "binds": lambda row: row.get("binds", "–"),
}


def table(rows: list[dict]) -> str:
    """The rows in Markdown."""
    lines = [
        f"| environment | kernel | {' | '.join(COLUMNS)} |",
        f"| --- | --- |{' ---: |' * (len(COLUMNS) - 1)} --- |",
    ]
    for row in rows:
        cells = " | ".join(of(row) for of in COLUMNS.values())
        lines.append(f"| {row['environment']} | `{row['kernel']}` | {cells} |")
    return "\n".join(lines)


def page(rows: list[dict], target: str) -> str:
    """The text between the marks of the README, with them."""
    machine, version = MACHINES[target], ".".join(map(str, compile.nvrtc().getVersion()))
    slots = f"{machine.multiprocessors} multiprocessors of {machine.schedulers} schedulers at"
    chip = f"{machine.title}: {slots} {machine.clock_hz / 1e9:.2f} GHz, memory at {machine.bandwidth / 1e12:.1f} TB/s"
    said = f"**Predicted**: kernels for {target}, compiled by NVRTC {version}, on one {chip}."
    return f"{MARKS[0]}\n{said}\n\n{table(rows)}\n{MARKS[1]}"


def published(file: Path = compile.KERNELS / "README.md") -> dict[tuple[str, str], float]:
    """Instructions issued in a step, by environment and kernel, as the table of a README has them."""
    head, *lines = re.findall(r"^\|.*\|$", file.read_text().partition(MARKS[0])[2].partition(MARKS[1])[0], re.MULTILINE)
    issued = head.split(" | ").index("issued")
    cells = [line.split(" | ") for line in lines[1:]]
    found = [(row[0].strip("| "), row[1], row[issued].replace(",", "")) for row in cells]
    return {(name, kernel.strip("`")): float(count) for name, kernel, count in found if count.isdigit()}


def around(file: Path) -> tuple[str, str]:
    """The text above and below the marks of a file.

    Raises:
        SystemExit: it cannot be read, or has not the two marks, each once and in order.
    """
    try:
        text = file.read_text()
    except OSError as error:
        sys.exit(f"--write {file}: it cannot be read ({error.strerror})")
    found = re.fullmatch(f"(.*){re.escape(MARKS[0])}.*{re.escape(MARKS[1])}(.*)", text, re.DOTALL)
    if not found or any(text.count(mark) != 1 for mark in MARKS):
        sys.exit(f"--write {file}: the table goes between {MARKS[0]} and {MARKS[1]}, each of which it must have once")
    return found[1], found[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.experiments.bench.machine_code", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--target", choices=MACHINES, default="sm_90", help="the GPU architecture (default: sm_90)")
    parser.add_argument("--write", type=Path, metavar="README", help="put the table between its marks in this file")
    options = parser.parse_args()
    disassembler()  # without it nothing is worth compiling
    if options.write:
        around(options.write)
    text = page(rows_of(options.target), options.target)
    if options.write:
        above, below = around(options.write)
        options.write.write_text(above + text + below)
    else:
        print(text)


if __name__ == "__main__":
    main()
