"""Command line: generates, imports and checks markets."""

import argparse
import sys
from pathlib import Path

from ...checks import integer
from ..params import MOST_LOOKBACK
from .file import load, read_json, save, with_rules
from .generator import SETS, generate
from .importers import IMPORTERS
from .market import MAX_GAP, Market


def main(words: list[str] | None = None) -> int:
    """Runs a command; 0, or 2 after an error that stderr tells."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.envs.crypto_trading.scenario", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("generate", help="write a synthetic market")
    making.add_argument("path", type=Path, help="table to write, .csv or .parquet; meta.json goes beside it")
    making.add_argument("--set", choices=SETS, default="small", help="size")
    making.add_argument("--seed", type=int, default=0)
    making.add_argument("--bars", type=int, help="in place of the set's")
    making.add_argument("--assets", type=int, help="in place of the set's")
    making.add_argument("--drift", choices=("regimes", "none"), default="regimes")
    reading = commands.add_parser("import", help="write what an exchange has published as a table of ours")
    reading.add_argument("source", choices=IMPORTERS)
    reading.add_argument("path", type=Path, help="table to write, .csv or .parquet; meta.json goes beside it")
    reading.add_argument("files", type=Path, nargs="+", help="tables to read")
    reading.add_argument("--bar-seconds", type=float, default=300.0)
    reading.add_argument("--max-gap", type=int, default=MAX_GAP, help="bars that may lack between two rows of a symbol")
    reading.add_argument(
        "--rules", type=Path, help='JSON of trading rules: {"BTCUSDT": {"min_qty": 0.00001, ...}, ...}'
    )
    checking = commands.add_parser("check", help="read a table and say what is in it")
    checking.add_argument("path", type=Path)
    checking.add_argument(
        "--max-gap", type=int, default=MAX_GAP, help="bars that may lack between two rows of a symbol"
    )
    checking.add_argument("--lookback", type=int, default=1, help="bars L of an observation; 2 L + 1 are needed")
    given = parser.parse_args(words)
    try:
        print({"generate": _generate, "import": _import, "check": _check}[given.command](given))
    except (ValueError, ImportError, OSError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _generate(given) -> str:
    market = generate(given.set, given.seed, given.bars, given.assets, given.drift)
    save(given.path, market)
    return _said(given.path, market)


def _import(given) -> str:
    if given.path.resolve() in [file.resolve() for file in given.files]:
        raise ValueError(f"{given.path} is one of the files to read, must be another")
    market = IMPORTERS[given.source](given.files, given.bar_seconds, given.max_gap)
    if given.rules:
        market = with_rules(market, read_json(given.rules))
    save(given.path, market, given.max_gap)
    return _said(given.path, market)


def _check(given) -> str:
    least = 2 * integer("lookback", given.lookback, 1, MOST_LOOKBACK) + 1
    market = load(given.path, given.max_gap)
    if market.bars < least:
        raise ValueError(
            f"{given.path}: has {market.bars} bars, must have at least {least} for lookback={given.lookback}"
        )
    return _said(given.path, market)


def _said(path: Path, market: Market) -> str:
    begin, end = market.timestamp[[0, -1]].astype("M8[ns]").astype("M8[s]")
    untradable = (~market.tradable).mean()
    return (
        f"{path}: {market.bars} bars of {market.assets} assets ({', '.join(market.symbols)}), {market.bar_seconds:g} s "
        f"each, {begin}Z to {end}Z, {untradable:.2%} not tradable"
    )


if __name__ == "__main__":
    sys.exit(main())
