"""Counting instructions in machine code, and that the committed table is of the present kernels."""

import functools
import re
import sys
from pathlib import Path

import pytest

from lockstep import envs
from lockstep.envs.batch import launch
from lockstep.envs.kernels import compile
from lockstep.experiments.bench import machine_code
from lockstep.experiments.bench.machine_code import MACHINES, Region

H200, A100 = MACHINES["sm_90"], MACHINES["sm_80"]
README = Path(envs.__file__).parent / "kernels" / "README.md"
TARGET = "sm_90"
SEVERAL_LANES = [name for name in envs.names() if machine_code.launch_form(name) == "several lanes"]


@pytest.fixture(scope="module")
def nvrtc():
    """The version of NVRTC, as the table names it."""
    try:
        return ".".join(map(str, compile.nvrtc().getVersion()))
    except compile.CompilerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("machine", "threads", "registers", "shared", "blocks"),
    [
        (H200, 256, 78, 320, 3),  # 80 x 32 = 2,560 registers a warp, 6 warps a scheduler, 24 of 8
        (H200, 256, 179, 36976, 1),  # 184 x 32 = 5,888, 2 a scheduler, 8 of 8
        (H200, 64, 179, 36976, 4),  # the same 8 warps, of 2
        (H200, 256, 32, 0, 8),  # 2,048 threads
        (H200, 32, 16, 0, 32),  # no more blocks than that
        (H200, 32, 16, 14016, 15),  # 15,040 with what is reserved, 15,104 by 128: 233,472 hold 15
        (A100, 32, 16, 14016, 11),  # 167,936 hold 11
        (H200, 1024, 72, 0, 0),  # 7 warps a scheduler, 28 of 32: it cannot be launched
    ],
)
def test_blocks_of_a_multiprocessor_in_cases_worked_by_hand(machine, threads, registers, shared, blocks):
    assert machine_code.occupancy(machine, threads, registers, shared) == blocks


def test_a_rate_is_a_share_of_the_issue_slots_or_what_memory_allows():
    slots = 132 * 4 * 1.98e9 * 32  # lanes and second
    low, high, binds = machine_code.predicted(H200, 100.0, 1.0)
    assert (low, high, binds) == pytest.approx((0.006 * slots, 0.0075 * slots, "issue"))
    assert machine_code.predicted(H200, 100.0, 40.0) == (1e11, 1e11, "memory")
    assert machine_code.predicted(H200, 100.0, 18.0)[1:] == pytest.approx((4e12 / 18, "issue, memory"))


SOURCE = """\
FN void walk(int n) {
    if (n == 3) {  // never }
        n += 1;
    }
    for (int k = 0; k < n;
         k++) n += k;
    if (n) other(n);
}
FN void other(int n) { n = 3; }
"""


def test_a_region_is_a_statement_without_the_condition_before_it(monkeypatch):
    condition, loop = Region("walk", r"if \(n == 3\)", "never"), Region("walk", "for ", "rounds", loop=True)
    call = Region("", r"if \(.*other", "twice")
    monkeypatch.setattr(machine_code, "REGIONS", [condition, loop, call])
    found = machine_code.regions_of(SOURCE)

    def lines_of(region, kind):
        return [number for number, line in enumerate(found, start=1) if region in getattr(line, kind)]

    assert lines_of(condition, "own") == lines_of(condition, "called") == [3, 4]
    assert lines_of(loop, "own") == lines_of(loop, "called") == [5, 6]
    assert (lines_of(call, "own"), lines_of(call, "called")) == ([], [7])


def place(*lines):
    inlined = [f'\t//## File "unit.cu", line {line} inlined at "unit.cu", line 9' for line in lines]
    return "\n".join(inlined)


LISTING = f"""\
{place(1)}
        /*0000*/                   MOV R1, R2 ;
{place(3)}
        /*0010*/                   MOV R1, R2 ;
.L_x_1:
        /*0020*/              @!P0 BRA `(.L_x_2) ;
        /*0030*/                   MOV R0, 0x70 ;
        /*0040*/                   CALL.REL.NOINC `($__slow) ;
        /*0050*/                   MOV R3, R0 ;
.L_x_2:
{place(4, 3)}
        /*0060*/                   MOV R1, R2 ;
{place(4, 3)}
        /*0070*/                   MOV R1, R2 ;
{place(3)}
        /*0080*/               @P0 BRA `(.L_x_1) ;
{place(5)}
        /*0090*/                   EXIT ;
$__slow:
        /*00a0*/                   RET.REL.NODEC R2 `(kernel) ;
"""


def test_instructions_issued_in_a_listing_counted_by_hand():
    """Ten rounds of a loop on line 3; line 4 runs in half of them; a call and what is called are a slow path."""
    loop, half, never = Region("", "", "rounds", loop=True), Region("", "", "half"), Region("", "", "never")
    of_line = {3: [loop], 4: [half], 6: [never]}
    regions = [machine_code.Line(of_line.get(line, []), of_line.get(line, [])) for line in range(1, 10)]
    rates = {"rounds": 10, "half": 0.5, "never": 0}
    before, condition, body, after = 2, 10 * 1, 10 * 0.5 * 3, 1
    assert machine_code.issued(LISTING, regions, rates) == before + condition + body + after


def test_shares_of_warps_whose_episodes_end_alone_and_together():
    """CartPole's end one by one, so that a warp of 32 has none in (1 - p)^32; Pendulum's all in every 200th step."""
    env = envs.make("cartpole", 2048, seed=1)
    env.reset()
    env.rollout(500)
    env.statistics()
    env.rollout(500)
    p = float(env.statistics()["episodes"]) / (500 * 2048)
    assert machine_code.ends("cartpole", 8)["ended"] == pytest.approx(1 - (1 - p) ** 32, rel=0.01)
    together = machine_code.ends("pendulum", 8)
    assert together == pytest.approx(dict.fromkeys(("ended", "cut"), 1 / 200) | {"fetched": 8 / 200})


def test_without_nvdisasm_it_says_where_to_get_one(monkeypatch):
    monkeypatch.setattr(machine_code.shutil, "which", lambda name, path: None)
    with pytest.raises(SystemExit, match="no nvdisasm on PATH, in CUDA_HOME or in an installed triton"):
        machine_code.disassembler()


@pytest.fixture
def command(monkeypatch):
    """Runs the command line as far as it goes with an nvdisasm that is never asked and without compiling."""

    def run(*options, nvdisasm=True):
        monkeypatch.setattr(machine_code.shutil, "which", lambda name, path: "/bin/false" if nvdisasm else None)
        monkeypatch.setattr(machine_code, "rows_of", lambda *given: pytest.fail("compiled"))
        monkeypatch.setattr(sys, "argv", ["machine_code", *map(str, options)])
        with pytest.raises(SystemExit) as ended:
            machine_code.main()
        return ended.value.code

    return run


def test_nvdisasm_is_looked_for_before_anything_is_compiled(command):
    assert command(nvdisasm=False).startswith("no nvdisasm on PATH")


BEGIN, END = machine_code.MARKS


@pytest.mark.parametrize("text", ["no marks", f"{BEGIN} only", f"{END} {BEGIN}", f"{BEGIN}{BEGIN} twice {END}"])
def test_a_file_without_marks_is_told_what_it_must_have(text, command, tmp_path):
    file = tmp_path / "README.md"
    file.write_text(text)
    assert command("--write", file) == (
        f"--write {file}: the table goes between {BEGIN} and {END}, each of which it must have once"
    )
    assert file.read_text() == text


def test_a_file_that_is_not_there_is_named(command, tmp_path):
    assert (
        command("--write", tmp_path / "none")
        == f"--write {tmp_path / 'none'}: it cannot be read (No such file or directory)"
    )


def test_a_table_takes_the_place_of_the_one_between_the_marks(monkeypatch, tmp_path):
    file = tmp_path / "README.md"
    file.write_text(f"above\n{BEGIN}\nolder\n{END}\nbelow\n")
    monkeypatch.setattr(machine_code, "disassembler", lambda: "")
    monkeypatch.setattr(machine_code, "rows_of", lambda target: [])
    monkeypatch.setattr(machine_code, "page", lambda *given: f"{BEGIN}\nnew\n{END}")
    monkeypatch.setattr(sys, "argv", ["machine_code", "--write", str(file)])
    machine_code.main()
    assert file.read_text() == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"


def test_every_region_is_found_in_the_kernels():
    names = [name for name in envs.names() if machine_code.launch_form(name) == "one lane"][:2]
    texts = [envs.units(name)["SameStep", "float32", kind] for name in names for kind in ("copy", "mlp")]
    found = {region for text in texts for line in machine_code.regions_of(text) for region in line.called}
    assert found == set(machine_code.REGIONS)


def default_unit(name: str) -> tuple[str, str]:
    """An environment's unit of the first case of its launch form, and the pattern of the kernels."""
    kinds, pattern = machine_code.CASES[machine_code.launch_form(name)][0]
    return machine_code.unit_of(name, kinds)[1], pattern


@pytest.mark.usefixtures("nvrtc")
def test_numbers_of_lines_do_not_change_the_machine_code():
    unit, pattern = default_unit("cartpole")
    plain = machine_code.sections(compile.cubin(unit, TARGET)[0])
    lined = machine_code.sections(machine_code.with_lines(unit, TARGET)[0])
    kernels = [name for name in plain if re.fullmatch(rf"\.text\.({pattern})", name)]
    assert kernels and all(lined[name] == plain[name] for name in kernels)


def shown(name: str, version: str) -> dict[str, dict[str, str]]:
    """An environment's rows of the committed table, by kernel and form; cells by column."""
    text = README.read_text().split(machine_code.MARKS[0])[1].split(machine_code.MARKS[1])[0]
    assert "**Predicted**" in text
    if f"NVRTC {version}," not in text:
        pytest.skip(f"the table is of another NVRTC than {version}, which is installed")
    heads, _, *rows = ([cell.strip() for cell in row[1:-1].split("|")] for row in re.findall(r"^\|.*\|$", text, re.M))
    return {row[1].replace("`", ""): dict(zip(heads[2:], row[2:], strict=True)) for row in rows if row[0] == name}


def near(cell: str):
    """A count as the table has it, and a few more or less.

    NVRTC gives the largest kernels some four instructions, and a register or three, more or less from one machine to
    the next.
    """
    return pytest.approx(int(cell.replace(",", "")), abs=5, rel=2e-4)


@pytest.mark.parametrize("name", ["cartpole", *(pytest.param(name, marks=pytest.mark.slow) for name in SEVERAL_LANES)])
def test_the_table_is_of_the_present_machine_code(name, nvrtc, monkeypatch):
    """Registers and instructions of some kernels of each launch form; and threads of a block, as compiled for."""
    monkeypatch.setattr(compile, "cubin", functools.cache(compile.cubin))
    unit, pattern = default_unit(name)
    parts = machine_code.sections(compile.cubin(unit, TARGET)[0])
    used = {row["kernel"]: row for row in compile.resources(unit, TARGET) if re.fullmatch(pattern, row["kernel"])}
    table = shown(name, nvrtc)
    assert used
    for kernel, row in used.items():
        assert machine_code.instructions(parts[f".text.{kernel}"]) == near(table[kernel]["instructions"])
        assert str(row["registers"]) == table[kernel]["registers"]
        threads = machine_code.bound(parts[f".nv.info.{kernel}"])
        of_block = "#define LANES" if name in SEVERAL_LANES else "#define TILE"
        declared = "STEP_BLOCK =" if kernel.startswith("step_") else of_block
        lanes = machine_code.number_in(unit, declared)
        groups = launch.groups_of_block(lanes) if name in SEVERAL_LANES else 1
        assert threads == launch.whole_warps(groups * lanes)


@pytest.mark.long
@pytest.mark.parametrize("name", envs.names())
def test_the_whole_table_is_of_the_present_kernels(name, nvrtc):
    """Every kernel and case, in the columns that need no nvdisasm; blocks and warps exactly."""
    about, exactly = ("instructions", "registers"), ("shared, bytes", "spills", "blocks", "warps")
    present = {row["kernel"]: row for row in machine_code.rows_of(TARGET, [name], disassembled=False)}
    table = shown(name, nvrtc)
    assert present and present.keys() == table.keys()
    for kernel, row in present.items():
        cells = table[kernel]
        assert {of: machine_code.COLUMNS[of](row) for of in exactly} == {of: cells[of] for of in exactly}, kernel
        assert {of: row[of] for of in about} == {of: near(cells[of]) for of in about}, kernel


def test_the_published_counts_are_those_of_the_table(tmp_path):
    row = {"environment": "pendulum", "kernel": "step_float32", "instructions": 700, "registers": 48}
    row |= {"shared": 516, "spills": 0, "threads": 256, "issued": 1232.0, "blocks": 5, "warps": 40}
    row |= {"low": 7e10, "high": 7e10, "binds": "memory"}
    rows = [row, row | {"environment": "edge", "issued": None}]
    file = tmp_path / "README.md"
    file.write_text(f"| a | table |\n\n{machine_code.page(rows, 'sm_90')}\n")
    assert machine_code.published(file)["pendulum", "step_float32"] == 1232
    assert {name for name, _ in machine_code.published(file)} == {"pendulum"}
    one_lane = {name for name in envs.names() if name not in SEVERAL_LANES}
    assert {name for name, _ in machine_code.published()} == one_lane
