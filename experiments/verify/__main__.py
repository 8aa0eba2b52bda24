"""Says whether a batched environment is the same as its original: its steps, episodes, resets and seeds."""

import argparse
import csv
import dataclasses
import hashlib
import io
import json
import math
import sys
import tempfile
import traceback
from pathlib import Path

from lockstep import files, interrupt
from lockstep.experiments import ROOT, UserError, command
from lockstep.experiments.ledger import provenance, sources
from lockstep.experiments.verify import comparison, shown, subjects
from lockstep.experiments.verify.checks import DIFFERS, TOLD, UNSEEN, Row
from lockstep.experiments.verify.comparison import Asked
from lockstep.experiments.verify.originals import Original

MODULE = "lockstep.experiments.verify"
COLUMNS = (
    *("subject", "original", "property", "seen", "cases", "field", "error", "p_value", "allowed", "differing"),
    *("verdict", "words", "example"),
)
DIFFERENT, BAD_INPUT = 1, 2  # exit status
LEAST = 1e-300  # of p-values, below which they are 0


def parser() -> argparse.ArgumentParser:
    default = Asked()
    arguments = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description=__doc__,
        epilog=f"Exit status: {DIFFERENT} for a difference, {BAD_INPUT} where nothing could be compared, else 0.",
    )
    kinds = ", ".join(f"{kind}:..." for kind in subjects.KINDS)
    arguments.add_argument(
        "factory",
        metavar="FACTORY",
        help=f"package.module:function, of the number of environments, and perhaps `seed`; or {kinds}",
    )
    arguments.add_argument(
        "--original",
        required=True,
        metavar="ID",
        help="of Gymnasium, or package.module:function that makes one, or a ParallelEnv of PettingZoo",
    )
    function = {"metavar": "MODULE:FUNCTION"}
    arguments.add_argument("--recover", **function, help="from observations [m, n] to states [m, k] of the original")
    arguments.add_argument("--inject", **function, help="puts (what FACTORY makes, states [B, k])")
    arguments.add_argument(
        "--policy", **function, help="from observations [m, n] to actions that bring episodes to the limit or a goal"
    )
    arguments.add_argument(
        "--transitions",
        type=command.count,
        default=default.transitions,
        help="to compare at least, of episodes that go on (default: %(default)s)",
    )
    arguments.add_argument(
        "--tolerance",
        type=positive,
        default=default.tolerance,
        help="largest error of observations and rewards, relative above 1 (default: %(default)s)",
    )
    arguments.add_argument("--num-envs", type=command.count, default=default.num_envs, help="default: %(default)s")
    arguments.add_argument("--seed", type=seed, default=default.seed, help="default: %(default)s")
    arguments.add_argument("--output", type=command.csv_path, help="where the rows go, with provenance beside them")
    return arguments


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31 - 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to 2^31 - 2")
    return int(text)


def shown_by(options: argparse.Namespace) -> shown.Shown:
    """The state that the original's observations show, as it is declared or as the options say."""
    found = shown.declared(options.original)
    if options.recover:
        found = dataclasses.replace(found, states=subjects.function("--recover", options.recover))
    return found


def asked_by(options: argparse.Namespace, seen: shown.Shown) -> Asked:
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Asked)}
    for name in ("policy", "inject"):
        if given[name]:
            subjects.function(f"--{name}", given[name])
    return Asked(**given | {"policy": given["policy"] or seen.named_policy})


def table(rows: list[Row]) -> str:
    """The rows as lines, and under them an example of each difference."""
    widths = [max(len(row.property) for row in rows), max(len(row.seen) for row in rows)]
    lines = []
    for row in rows:
        number = measured(row)
        words = "; ".join(filter(None, [number, row.words]))
        name = f"{row.property:{widths[0]}}  {row.seen:{widths[1]}}"
        lines.append(f"{name}  {row.cases:>9,}  {row.verdict:15} {words}".rstrip())
    for row in rows:
        if row.example:
            lines.append(f"\n{row.property}, {row.seen}, for example:")
            lines += [f"  {key}: {json.dumps(value)}" for key, value in row.example.items()]
    return "\n".join(lines)


def measured(row: Row) -> str:
    """The largest error or the least p-value, and what is allowed."""
    if row.numbers:
        pick, bound = (max, "at most") if row.measure == "error" else (min, "at least")
        worst = pick(row.numbers, key=row.numbers.get)
        number = f"{row.numbers[worst]:.2g}" if row.numbers[worst] or row.measure == "error" else f"below {LEAST:.0e}"
        words = f"{row.measure} {number} ({worst}), {bound} {row.allowed:.2g}"
        return words + (f", beyond in {row.differing:,}" if row.differing else "")
    return f"{row.differing:,} differ" if row.differing and row.allowed == 0 else ""


def conclusion(rows: list[Row]) -> str:
    of = {verdict: [row for row in rows if row.verdict == verdict] for verdict in (DIFFERS, UNSEEN, TOLD)}
    judged = len(rows) - len(of[UNSEEN]) - len(of[TOLD])
    rest = f"; {len(of[UNSEEN])} cannot be seen" if of[UNSEEN] else ""
    if of[DIFFERS]:
        ways = {row.property: [one.seen for one in of[DIFFERS] if one.property == row.property] for row in of[DIFFERS]}
        names = ", ".join(name + f" ({' and '.join(seen)})" * (len(seen) > 1) for name, seen in ways.items())
        return f"{len(of[DIFFERS])} of {judged} checks found a difference: {names}{rest}"
    return f"no difference in {judged} checks{rest}"


def csv_text(subject: str, original: str, rows: list[Row]) -> str:
    """One line for each number of a row."""
    text = io.StringIO()
    lines = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    lines.writeheader()
    lines.writerows({"subject": subject, "original": original} | line for row in rows for line in row.lines())
    return text.getvalue()


def try_out(output: Path) -> None:
    """UserError where files cannot be made in the place, before anything is compared."""
    with command.writing(output):
        for path in (output, output.with_suffix(".json")):
            files.make_room(path)
        tempfile.TemporaryFile(dir=output.parent).close()


def write(output: Path, text: str, config: dict, started: str) -> None:
    """X.csv and its provenance, X.json; UserError where they cannot be written."""
    families = [file.relative_to(ROOT).as_posix() for file in shown.files()]
    paths = [*sources.of(f"{MODULE}.__main__"), *families]
    described = provenance.collect("verify", None, None, config, provenance.hashes(paths), started=started)
    described["rows_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    with command.writing(output):
        for path, content in ((output, text), (output.with_suffix(".json"), json.dumps(described, indent=1) + "\n")):
            with files.replacing(path, newline="") as file:
                file.write(content)


def verify(options: argparse.Namespace) -> int:
    """Compare, print, and write what is asked for; the exit status."""
    started, seen, original = provenance.now(), shown_by(options), Original(options.original)
    asked = asked_by(options, seen)
    if options.output:
        try_out(options.output)
    rows, record = comparison.compare(options.factory, original, seen, asked)
    packages = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    print(f"{options.factory}{packages and f' ({packages})'} beside {options.original}\n")
    print(table(rows), conclusion(rows), sep="\n\n")
    if options.output:
        config = {"factory": options.factory, "original": options.original, "recover": options.recover}
        config |= dataclasses.asdict(asked) | {"versions": record.versions}
        write(options.output, csv_text(options.factory, options.original, rows), config, started)
    return DIFFERENT if any(row.verdict == DIFFERS for row in rows) else 0


def main() -> int:
    """The command line; its exit status."""
    options = parser().parse_args()
    try:
        return verify(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()  # perhaps of the user's own code, which it helps to mend; it is no difference
    return BAD_INPUT


if __name__ == "__main__":
    with interrupt.told("interrupted; nothing was written"):
        status = main()
    sys.exit(status)
