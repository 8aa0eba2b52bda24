"""Tables, figures and single numbers from the results at hand, as the chapters show them.

python -m lockstep.paper.report --figure ladder    results/figures/ladder.svg and .png, without the page
python -m lockstep.paper.report --table ladder     results/tables/ladder.csv and .md
"""

import argparse
import functools
import html
import multiprocessing
import os
import re
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pandas as pd
from IPython.display import HTML

from lockstep import files, paper
from lockstep.experiments import ROOT, UserError, command
from lockstep.paper import families, figures, quantities, tables, typeset

ASIDE = '<div class="aside">{}</div><!-- end of aside -->'  # around what is the supplement's
SHORT, LONG = 12, 500  # rows that a table may have without being folded, and on a page at all


class Report:
    """Tables, figures and numbers for the cells of the chapters. What is shown is also written to a file.

    Of what the chapters show, `families.page` is on the page, but for figures of nothing; the rest is in its
    supplement, under the same headings.

    root: the repository that holds results/. folder: where tables/ and figures/ go. processes: with more than one they
    make all figures and tables at once, before the first is shown.
    """

    def __init__(self, root: Path | None = None, folder: Path | None = None, processes: int = 1):
        self.processes = processes
        self.loaded = paper.load(Path(root or os.environ.get("LOCKSTEP_ROOT", ROOT)))
        self.datasets = [dataset for dataset in self.loaded if len(dataset.frame)]  # else its machine was too busy
        self.folder = Path(folder or os.environ.get("LOCKSTEP_OUTPUT", ROOT / "results"))
        self.page, self.shown = families.page(), []

    def table(self, name: str) -> HTML:
        """A table under its caption, numbered in the order of appearance."""
        about, frame = tables.every()[name], self.frame(name)
        words = paper.caption(about, self.datasets)
        columns, rows = about.seen(frame)
        write(self.folder / "tables" / f"{name}.csv", typeset.csv(frame))
        write(self.folder / "tables" / f"{name}.md", f"{words}\n\n{typeset.markdown(columns, rows)}")
        body = typeset.html_table(columns, rows, about.empty)
        box = f'<div class="scroll" tabindex="0" role="region" aria-label="table {name}">{body}</div>'
        if about.folded and len(rows) > LONG:
            box = f"<p>{len(rows):,} rows, in the CSV file.</p>"
        elif about.folded and len(rows) > SHORT:
            box = f"<details><summary>{len(rows):,} rows: show them</summary>{box}</details>"
        caption = self.caption("table", name, words, f"tables/{name}.csv")
        return HTML(f'<figure class="table" id="table-{name}">{caption}{box}</figure>')

    def frame(self, name: str) -> pd.DataFrame:
        """The numbers of a table."""
        return self.made["table", name] if self.processes > 1 else tables.frame(name, self.datasets)

    def figure(self, name: str) -> HTML:
        """A figure above its caption, numbered in the order of appearance."""
        about = figures.every()[name]
        drawing, picture = self.made["figure", name] if self.processes > 1 else figures.files(name, self.datasets)
        if figures.shows_nothing(drawing):
            self.page = self.page - {f"figure:{name}"}
        write(self.folder / "figures" / f"{name}.svg", drawing)
        write(self.folder / "figures" / f"{name}.png", picture)
        caption = self.caption("figure", name, paper.caption(about, self.datasets), f"figures/{name}.svg")
        box = f'<div class="scroll">{inline(drawing, name, about.alt)}</div>'
        return HTML(f'<figure class="drawing" id="figure-{name}">{box}{caption}</figure>')

    @functools.cached_property
    def made(self) -> dict[tuple[str, str], object]:
        """All figures, as SVG and PNG, and the frames of all tables, by kind and name."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        wanted = [("figure", name) for name in figures.every()] + [("table", name) for name in tables.every()]
        try:
            with (
                command.watching_workers(),
                ProcessPoolExecutor(self.processes, context, command.worker, (_begin, self.datasets)) as pool,
            ):
                return dict(pool.map(_made, wanted))
        except BrokenProcessPool:
            raise UserError(command.KILLED) from None

    def caption(self, kind: str, name: str, words: str, file: str) -> str:
        on_page = f"{kind}:{name}" in self.page
        self.shown.append(f"{kind}:{name}")
        number = sum(one.startswith(f"{kind}:") and (one in self.page) == on_page for one in self.shown)
        link = f'<a class="file" href="{file}">{file.rpartition(".")[2].upper()}</a>'
        title = f"{kind.title()}\N{NO-BREAK SPACE}{'' if on_page else 'S'}{number}"
        return f"<figcaption><b>{title}.</b> {html.escape(words)} {link}</figcaption>"

    def show(self, *names: str) -> HTML:
        """Tables and figures by names as in "table:claims", one below the other."""
        shown = ((name, getattr(self, kind)(one).data) for name in names for kind, one in [name.split(":")])
        return HTML("\n".join(drawn if name in self.page else ASIDE.format(drawn) for name, drawn in shown))

    def others(self) -> HTML:
        """The tables and figures that no cell has shown."""
        every = {"figure": figures.every(), "table": tables.every()}
        return self.show(
            *(one for kind in every for name in every[kind] if (one := f"{kind}:{name}") not in self.shown)
        )

    def machines(self) -> list[str]:
        return paper.machines(self.datasets)

    def recorded(self) -> set[str]:
        """The experiments that some machine has on record."""
        return {run.provenance["experiment"] for run in self.datasets if run.origin != "here"}

    def hardware(self, machine: str) -> str:
        """The description of a machine."""
        label = next(d.provenance["machine"]["label"] for d in self.datasets if paper.machine(d) == machine)
        return tables.plain(label)

    def on(self, machine: str, quantity: str, against: Mapping | None = None, **select) -> str:
        """A machine's figure without its interval, asked for as in claims.yaml; else "not measured"."""
        item = {"quantity": quantity, "select": select, "against": against}
        found = [finding.shown for finding in quantities.find(self.datasets, item) if finding.machine == machine]
        return found[0] if found else paper.NOT_MEASURED


@functools.cache
def shared() -> Report:
    """The one report that the chapters of a page have in common."""
    return Report(processes=int(os.environ.get("LOCKSTEP_PROCESSES", "1")))


def _begin(datasets: list) -> None:
    """Keeps the results, in a process that makes figures and tables."""
    global _datasets
    _datasets = datasets


def _made(wanted: tuple[str, str]) -> tuple[tuple[str, str], object]:
    kind, name = wanted
    if kind == "figure":
        return wanted, figures.files(name, _datasets)
    return wanted, tables.frame(name, _datasets)


def write(path: Path, content: str | bytes) -> None:
    """Put a file in its place, in one step; UserError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def inline(drawing: str, name: str, alt: str) -> str:
    """An SVG file as an element of the page: ids made the page's own, width left to the page."""
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{name}-', drawing)
    drawing = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", drawing)
    tag, rest = drawing.split(">", 1)
    tag = re.sub(r' (width|height)="[^"]*"', "", tag)
    return f'{tag} role="img" aria-label="{html.escape(alt)}">{rest}'


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m lockstep.paper.report", description=__doc__.split("\n")[0])
    for kind, known in {"figure": figures.every(), "table": tables.every()}.items():
        arguments.add_argument(f"--{kind}", nargs="*", action="extend", default=[], choices=list(known), metavar="NAME")
    asked = arguments.parse_args()
    if not asked.figure and not asked.table:
        raise UserError("say --figure NAME or --table NAME")
    report = Report()
    for name in asked.figure:
        report.figure(name)
        print(report.folder / "figures" / f"{name}.svg")
    for name in asked.table:
        report.table(name)
        print(report.folder / "tables" / f"{name}.csv")


if __name__ == "__main__":
    command.run(main)
