"""The paper as one HTML file: joins the chapters, runs them, numbers what they show.

    python -m lockstep.paper.build --output results/report.html

Chapters are notebooks in the order of their names; those in a family's folder fall into place among them. Beside the
page it writes supplement.html, with the tables and figures that are too many for the page, every table as
tables/<name>.csv and .md, every figure as figures/<name>.svg and .png. The pages load nothing: no script, no font, no
image from elsewhere. Equal results give equal bytes.
"""

import argparse
import errno
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbconvert.exporters import HTMLExporter, TemplateExporter
from nbconvert.preprocessors import ExecutePreprocessor
from pybtex.database import Entry, parse_file
from pybtex.style import template
from pybtex.style.formatting import unsrt
from traitlets import default
from traitlets.config import Config

from lockstep import paper
from lockstep.experiments import ROOT, UserError, command
from lockstep.experiments.ledger import provenance
from lockstep.experiments.ledger.results import write_whole
from lockstep.paper import families, report

FOLDER = Path(__file__).parent
SUPPLEMENT = "supplement.html"
ASIDE = re.compile(report.ASIDE.format(".*?"), re.DOTALL)
HEADING = re.compile(r"<h2[^>]*>.*?</h2>|<h3[^>]*>.*?</h3>", re.DOTALL)
PAGE = '<div class="page[^>]*>'
CONTENTS = "<!-- contents -->"  # in the first chapter: where the title ends and the table of contents belongs
FOLD = '<input type="checkbox" id="contents"><label for="contents">Contents</label>'  # a phone shows them closed
TIMEOUT_S = 600  # of one cell


class Kernel(AsyncKernelManager):
    """The kernel of this very Python, whatever kernels of that name the reader has installed."""

    @default("kernel_spec_manager")
    def no_folders(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


def chapters() -> list[Path]:
    """The notebooks of the report in their order; of two with one name that of all families first."""
    files = [file for place in ("chapters", "*/chapters") for file in sorted(FOLDER.glob(f"{place}/*.ipynb"))]
    return sorted(files, key=lambda file: file.name)


def joined() -> nbformat.NotebookNode:
    """All chapters as one notebook; `<!-- families: limits -->` becomes what the families' about.yaml say of limits."""

    def said(mark: re.Match) -> str:
        return "\n".join(about[mark[1]] for about in map(families.about, families.names()) if mark[1] in about)

    first, *others = [nbformat.read(file, as_version=4) for file in chapters()]
    first.cells += [cell for notebook in others for cell in notebook.cells]
    for place, cell in enumerate(first.cells):
        cell.id = f"cell-{place}"
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"<!-- families: (\w+) -->", said, cell.source)
    return first


def executed(nb: nbformat.NotebookNode, root: Path, folder: Path, processes: int) -> nbformat.NotebookNode:
    """The notebook with outputs, run by this Python in the repository, whatever the reader's own settings."""
    with tempfile.TemporaryDirectory() as empty:
        settings = {
            "LOCKSTEP_ROOT": str(root),
            "LOCKSTEP_OUTPUT": str(folder),
            "LOCKSTEP_PROCESSES": str(processes),
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
        except CellExecutionError as error:
            if error.ename != UserError.__name__:
                raise
            raise UserError(error.evalue) from None
        except DeadKernelError:
            raise UserError("the process that runs the chapters was killed, perhaps for want of memory") from None
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
    return nb


class Exporter(HTMLExporter):
    """HTML as the template says; what nbconvert does to a finished page is for code and images, and takes seconds."""

    from_notebook_node = TemplateExporter.from_notebook_node


def pages(nb: nbformat.NotebookNode, name: str) -> dict[str, str]:
    """The HTML of an executed notebook, and of its supplement, by the names of their files."""
    exporter = Exporter(
        template_name="template",
        extra_template_basedirs=[str(FOLDER)],
        exclude_input=True,
        exclude_anchor_links=True,
    )
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    body, _ = exporter.from_notebook_node(nb, resources={"paper_css": css})
    parts = dict(zip((name, SUPPLEMENT), taken_apart(body, name), strict=True))
    letters = {name: "", SUPPLEMENT: "S"}  # before the numbers of sections
    return {file: with_contents(with_citations(with_references(file, parts)), letters[file]) for file in parts}


def taken_apart(body: str, name: str) -> tuple[str, str]:
    """The page without what is the supplement's, and the supplement; either has the headings of what it holds.

    name: of the page's file.
    """
    start, mark, rest = body.partition(CONTENTS)
    if not mark:
        raise ValueError(f"no chapter has {CONTENTS}")
    kept: list[str] = []
    moved: list[str] = []
    above = (kept, {}), (moved, {})  # headings below which nothing stands yet, by their level
    for part in re.split(f"({ASIDE.pattern}|{HEADING.pattern})", rest, flags=re.DOTALL):
        if HEADING.fullmatch(part):
            for _, headings in above:
                for level in [level for level in headings if level >= part[2]]:
                    del headings[level]
                headings[part[2]] = part
        elif part.strip():
            place, headings = above[bool(ASIDE.fullmatch(part))]
            place += [*headings.values(), part]
            headings.clear()
    head, page = re.split(PAGE, body, maxsplit=1)[0], (FOLDER / "supplement.html").read_text(encoding="utf-8")
    return "".join([start, mark, *kept]), head + page.format(name=name, contents=CONTENTS, tables="".join(moved))


def with_references(file: str, parts: Mapping[str, str]) -> str:
    """A part in which `@table:claims` becomes a link "Table 7", into another part where the table is there."""

    def link(match: re.Match) -> str:
        kind, name = match[1], match[2]
        shown = rf'id="{kind}-{name}">.*?<b>(\w+\sS?\d+)\.</b>'
        for other, body in parts.items():
            if found := re.search(shown, body, re.DOTALL):
                return f'<a href="{other if other != file else ""}#{kind}-{name}">{found[1]}</a>'
        raise ValueError(f"the prose refers to {kind} {name!r}, which is not shown")

    return re.sub(r"@(table|figure):(\w+)", link, parts[file])


def with_citations(body: str) -> str:
    """`[@key]` becomes the number of an entry of references.bib; the cited ones are listed at the end."""
    works, cited = bibliography(FOLDER / "references.bib"), []

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


class Works(unsrt.Style):
    """BibTeX's unsrt, but for titles, whose capitals stay as the file has them."""

    def format_title(self, entry: Entry, which_field: str, as_sentence: bool = True) -> template.Node:
        title = template.field(which_field)
        return template.sentence[title] if as_sentence else title


def bibliography(file: Path) -> dict[str, str]:
    """HTML of each entry of a BibTeX file, by key."""
    works = parse_file(file, "bibtex")
    found = Works().format_bibliography(works, list(works.entries))
    return {work.key: re.sub(r",? and others\.", " et al.", work.text.render_as("html")) for work in found}


def with_contents(body: str, letter: str = "") -> str:
    """Headings get numbers, perhaps after a letter; what stands before the mark is the page's head, contents follow."""
    numbers, entries = [0, 0], []

    def numbered(match: re.Match) -> str:
        level, words = int(match[1]), match[2]
        if level == 2:
            numbers[:] = [numbers[0] + 1, 0]
        else:
            numbers[1] += 1
        number = letter + ".".join(str(n) for n in numbers[: level - 1])
        entries.append(f'<li class="level{level}"><a href="#section-{number}"><span>{number}</span> {words}</a></li>')
        return f'<h{level} id="section-{number}"><span class="count">{number}</span>{words}</h{level}>'

    start, _, rest = body.partition(CONTENTS)
    rest = re.sub(r"<h([23])[^>]*>(.*?)</h\1>", numbered, rest)
    listed = "\n".join(entries)
    contents = f'<nav class="contents" aria-label="Contents">{FOLD}<ol>\n{listed}\n</ol></nav>'
    start = re.sub(PAGE, r"\g<0>\n<header>", start, count=1) + "</header>"
    rest = rest.replace("</div>\n</body>", "</main>\n</div>\n</body>")
    return f"{start}\n{contents}\n<main>{rest}"


def build(output: Path, root: Path = ROOT, processes: int = 1) -> None:
    """Write the page, and tables/ and figures/ beside it, from what lies under root/results/.

    processes: that draw figures.

    UserError where a result cannot be used or the page not be written; nbclient's CellExecutionError where a
    cell of a chapter fails.
    """
    if output.suffix != ".html":
        raise UserError(f"--output {output}: the page must be called something.html")
    paper.load(root)  # in this process, so that a mistake in the results ends in one sentence
    with writing(output):
        folder = output.resolve().parent
        for place in (folder, folder / "tables", folder / "figures"):
            place.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()  # now, not after the chapters have run
        if output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    written = pages(executed(joined(), root.resolve(), folder, processes), output.name)
    with writing(output):
        for name, text in written.items():
            write_whole(folder / name, text)


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
    build(output, processes=provenance.core_count())
    print(f"{output}: the paper; its tables and figures lie beside it")


if __name__ == "__main__":
    command.run(main)
