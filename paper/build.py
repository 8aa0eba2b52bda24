"""The paper as one HTML file: runs the notebook, shows its tables and figures, numbers what it shows.

    python -m lockstep.paper.build --output results/report.html

Beside the page it writes every table as tables/<name>.csv and .md, every figure as figures/<name>.svg and
.png; CSV and SVG are also inside the page, so that a page that was mailed still has them. The page loads
nothing: no script, no font, no image from elsewhere. Equal results give equal bytes.
"""

import argparse
import base64
import errno
import html
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import nbformat
from IPython.display import HTML
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbconvert.exporters import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor
from traitlets import default
from traitlets.config import Config

from lockstep import paper
from lockstep.experiments import ROOT, UserError, command
from lockstep.experiments.ledger.results import write_whole
from lockstep.paper import figures, quantities, tables, typeset

NOTEBOOK = Path(__file__).with_name("report.ipynb")
CONTENTS = "<!-- contents -->"  # in the notebook: where the title ends and the table of contents belongs
TIMEOUT_S = 600  # of one cell
EMBEDDED = 150_000  # bytes; a larger file is linked to, so that the page stays below about 2 MB
SHORT = 12  # rows that a table may have without being folded


class Report:
    """What the notebook's cells show. Each table and figure that is shown is also written to a file.

    root: the repository that holds results/. folder: where tables/ and figures/ go.
    """

    def __init__(self, root: Path | None = None, folder: Path | None = None):
        self.datasets = paper.load(Path(root or os.environ.get("LOCKSTEP_ROOT", ROOT)))
        self.folder = Path(folder or os.environ.get("LOCKSTEP_OUTPUT", ROOT / "results"))
        self.shown: dict[str, list[str]] = {"table": [], "figure": []}

    def table(self, name: str) -> HTML:
        """A table of paper/tables.py under its caption, numbered in the order of appearance."""
        about = tables.TABLES[name]
        frame = about.frame(self.datasets)
        columns, rows = about.seen(frame)
        write(self.folder / "tables" / f"{name}.csv", typeset.csv(frame))
        write(self.folder / "tables" / f"{name}.md", f"{about.caption}\n\n{typeset.markdown(columns, rows)}")
        body = typeset.html_table(columns, rows, about.empty)
        box = f'<div class="scroll" tabindex="0" role="region" aria-label="table {name}">{body}</div>'
        if about.folded and len(rows) > SHORT:
            box = f"<details><summary>{len(rows):,} rows: show them</summary>{box}</details>"
        caption = self.caption("table", name, about.caption, f"tables/{name}.csv")
        return HTML(f'<figure class="table" id="table-{name}">{caption}{box}</figure>')

    def figure(self, name: str) -> HTML:
        """A figure of paper/figures/ above its caption, numbered in the order of appearance."""
        about, drawn = figures.module(name), figures.draw(name, self.datasets)
        drawing = figures.svg(drawn)
        drawn.set_layout_engine("none")  # everything has its place by now; to find it again takes seconds
        write(self.folder / "figures" / f"{name}.svg", drawing)
        write(self.folder / "figures" / f"{name}.png", figures.png(drawn))
        caption = self.caption("figure", name, about.caption, f"figures/{name}.svg")
        box = f'<div class="scroll">{inline(drawing, name, about.alt)}</div>'
        return HTML(f'<figure class="drawing" id="figure-{name}">{box}{caption}</figure>')

    def caption(self, kind: str, name: str, words: str, file: str) -> str:
        self.shown[kind].append(name)
        number = len(self.shown[kind])
        link = f'<a class="file" {reference(self.folder, file)}>{file.rpartition(".")[2].upper()}</a>'
        return f"<figcaption><b>{kind.title()}&nbsp;{number}.</b> {html.escape(words)} {link}</figcaption>"

    def others(self) -> HTML:
        """The tables and figures that no cell has shown."""
        parts = [self.figure(name).data for name in figures.names() if name not in self.shown["figure"]]
        parts += [self.table(name).data for name in tables.TABLES if name not in self.shown["table"]]
        return HTML("\n".join(parts))

    def machines(self) -> list[str]:
        """The machines that have measured anything, "here" first, then those with a GPU."""
        with_gpu = {paper.machine(run) for run in self.datasets if run.provenance["machine"].get("gpu")}
        names = {paper.machine(run) for run in self.datasets}
        return sorted(names, key=lambda name: (name != "here", name not in with_gpu, name))

    def hardware(self, machine: str) -> str:
        """What a machine is."""
        label = next(d.provenance["machine"]["label"] for d in self.datasets if paper.machine(d) == machine)
        return tables.plain(label)

    def on(self, machine: str, quantity: str, against: Mapping | None = None, **select) -> str:
        """A machine's figure without its interval, asked for as in claims.yaml; else "not measured"."""
        item = {"quantity": quantity, "select": select, "against": against}
        found = [finding.shown for finding in quantities.find(self.datasets, item) if finding.machine == machine]
        return found[0] if found else paper.NOT_MEASURED


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def reference(folder: Path, file: str) -> str:
    """The attributes of a link to a file beside the page, the file itself in them if it is not too large."""
    content = (folder / file).read_bytes()
    if len(content) > EMBEDDED:
        return f'href="{file}"'
    kind = {"csv": "text/csv", "svg": "image/svg+xml"}[file.rpartition(".")[2]]
    encoded = base64.b64encode(content).decode()
    return f'download="{Path(file).name}" href="data:{kind};base64,{encoded}"'


def inline(drawing: str, name: str, alt: str) -> str:
    """An SVG file as an element of the page: ids made the page's own, width left to the page."""
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{name}-', drawing)
    drawing = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", drawing)
    tag, rest = drawing.split(">", 1)
    tag = re.sub(r' (width|height)="[^"]*"', "", tag)
    return f'{tag} role="img" aria-label="{html.escape(alt)}">{rest}'


class Kernel(AsyncKernelManager):
    """The kernel of this very Python, whatever kernels of that name the reader has installed."""

    @default("kernel_spec_manager")
    def no_folders(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


def executed(notebook: Path, root: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with outputs, run by this Python in the repository, whatever the reader's own settings."""
    nb = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as empty:
        settings = {
            "LOCKSTEP_ROOT": str(root),
            "LOCKSTEP_OUTPUT": str(folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            **dict.fromkeys(["IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"], empty),
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            # Over files, not ports: nothing outside can talk to the kernel.
            connection = Config(KernelManager={"transport": "ipc", "ip": f"{empty}/kernel"})
            run = ExecutePreprocessor(timeout=TIMEOUT_S, kernel_manager_class=Kernel, config=connection)
            run.preprocess(nb, {"metadata": {"path": str(ROOT)}})
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
    return nb


def page(nb: nbformat.NotebookNode) -> str:
    """The HTML of an executed notebook."""
    exporter = HTMLExporter(
        template_name="template",
        extra_template_basedirs=[str(Path(__file__).parent)],
        exclude_input=True,
        exclude_anchor_links=True,
    )
    css = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(nb, resources={"paper_css": css})
    return with_contents(with_citations(with_references(body)))


def with_references(body: str) -> str:
    """`@table:claims` becomes a link "Table 7"."""

    def link(match: re.Match) -> str:
        kind, name = match[1], match[2]
        found = re.search(rf'id="{kind}-{name}">.*?<b>(\w+\s\d+)\.</b>', body, re.DOTALL)
        if found is None:
            raise ValueError(f"the prose refers to {kind} {name!r}, which is not shown")
        return f'<a href="#{kind}-{name}">{found[1]}</a>'

    return re.sub(r"@(table|figure):(\w+)", link, body)


def with_citations(body: str) -> str:
    """`[@key]` becomes the number of an entry of references.bib; the cited ones are listed at the end."""
    works, cited = bibliography(Path(__file__).with_name("references.bib").read_text(encoding="utf-8")), []

    def link(match: re.Match) -> str:
        key = match[1]
        if key not in works:
            raise ValueError(f"the prose cites {key!r}, which is not in references.bib")
        if key not in cited:
            cited.append(key)
        return f'<a class="cite" href="#ref-{key}">[{cited.index(key) + 1}]</a>'

    body = re.sub(r"\[@(\w+)\]", link, body)
    entries = "\n".join(f'<li id="ref-{key}">{works[key]}</li>' for key in cited)
    return body.replace("<!-- references -->", f'<ol class="references">\n{entries}\n</ol>')


def bibliography(bibtex: str) -> dict[str, str]:
    """HTML of each entry of a BibTeX file, by key. Fields stand one on a line, in braces."""
    works = {}
    for entry in re.finditer(r"@\w+\{(\w+),\n(.*?)\n\}", bibtex, re.DOTALL):
        fields = {name: re.sub(r"[{}\\]", "", value) for name, value in re.findall(r"(\w+)\s*=\s*\{(.*)\}", entry[2])}
        fields = {name: html.escape(value.replace("--", "\N{EN DASH}")) for name, value in fields.items()}
        place = next((fields[name] for name in ("journal", "booktitle", "howpublished") if name in fields), "")
        volume = " ".join(filter(None, [fields.get("volume"), fields.get("number") and f"({fields['number']})"]))
        doi = fields.get("doi")
        parts = [
            fields["author"].replace(" and others", " et al.").replace(" and ", "; "),
            f"<cite>{fields['title']}</cite>",
            ", ".join(filter(None, [place, volume, fields.get("pages")])),
            fields["year"],
            doi and f'<a href="https://doi.org/{doi}">doi:{doi}</a>',
        ]
        # A part that ends in an initial, or in "et al.", has its full stop.
        works[entry[1]] = " ".join(part if part.endswith(".") else f"{part}." for part in filter(None, parts))
    return works


def with_contents(body: str) -> str:
    """Headings get numbers; what stands before the mark becomes the page's head, the contents follow it."""
    numbers, entries = [0, 0], []

    def numbered(match: re.Match) -> str:
        level, words = int(match[1]), match[2]
        if level == 2:
            numbers[:] = [numbers[0] + 1, 0]
        else:
            numbers[1] += 1
        number = ".".join(str(n) for n in numbers[: level - 1])
        entries.append(f'<li class="level{level}"><a href="#section-{number}"><span>{number}</span> {words}</a></li>')
        return f'<h{level} id="section-{number}"><span class="count">{number}</span>{words}</h{level}>'

    start, mark, rest = body.partition(CONTENTS)
    if not mark:
        raise ValueError(f"the notebook has no {CONTENTS}")
    rest = re.sub(r"<h([23])[^>]*>(.*?)</h\1>", numbered, rest)
    listed = "\n".join(entries)
    contents = f'<nav class="contents" aria-label="Contents"><p>Contents</p><ol>\n{listed}\n</ol></nav>'
    start = start.replace('<div class="page">', '<div class="page">\n<header>', 1) + "</header>"
    rest = rest.replace("</div>\n</body>", "</main>\n</div>\n</body>")
    return f"{start}\n{contents}\n<main>{rest}"


def build(output: Path, root: Path = ROOT) -> None:
    """Write the page, and tables/ and figures/ beside it, from what lies under root/results/.

    UserError where a result cannot be used or the page not be written; nbclient's CellExecutionError where a
    cell of the notebook fails.
    """
    if output.suffix != ".html":
        raise UserError(f"--output {output}: the page must be called something.html")
    paper.load(root)  # in this process, so that a mistake in the results ends in one sentence
    with writing(output):
        folder = output.resolve().parent
        for place in (folder, folder / "tables", folder / "figures"):
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()  # now, not after the notebook has run
        if output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    written = page(executed(NOTEBOOK, root.resolve(), folder))
    with writing(output):
        write_whole(output, written)


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """A place that cannot be written to becomes a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--output {output} cannot be written: {error.strerror}") from error


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m lockstep.paper.build", description=__doc__.split("\n")[0])
    arguments.add_argument(
        "--output", type=Path, default=Path("results", "report.html"), help="default: results/report.html"
    )
    output = arguments.parse_args().output
    build(output)
    print(f"{output}: the paper; its tables and figures lie beside it")


if __name__ == "__main__":
    command.run(main)
