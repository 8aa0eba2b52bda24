import ast
import builtins
import errno
import json
import re
import sys

import nbformat
import pandas as pd
import pytest

from lockstep import paper
from lockstep.experiments import ROOT, UserError, command
from lockstep.experiments.ledger.checksums import ChecksumError
from lockstep.paper import build, families, figures, report, tables, typeset
from lockstep.paper.report import LONG, SHORT, Report
from tests.faults import Faults, failing
from tests.paper import handwritten

NOTEBOOK = build.joined()
LOADS = [
    r"<script",
    r"<link",
    r"<iframe",
    r"@import",
    r"url\(\s*['\"]?(?!#)",
    r"(?:src|srcset|poster|data|action|xlink:href)\s*=\s*['\"]?(?:https?:)?//",
]


def test_every_table_and_figure_is_in_one_of_the_pages_with_its_files(page, text, supplement):
    for kind, names, suffixes in (
        ("table", tables.every(), ("csv", "md")),
        ("figure", figures.every(), ("svg", "png")),
    ):
        drawn = [(page / "figures" / f"{name}.svg").read_text() if kind == "figure" else "" for name in names]
        on_page = [
            f"{kind}:{name}" in families.page() and not figures.shows_nothing(drawing)
            for name, drawing in zip(names, drawn, strict=True)
        ]
        places = [(on, f'id="{kind}-{name}"') for on, name in zip(on_page, names, strict=True)]
        assert [(text.count(id), supplement.count(id)) for _, id in places] == [(on, 1 - on) for on, _ in places]
        files = {path.name for path in (page / f"{kind}s").iterdir()}
        assert files == {f"{name}.{suffix}" for name in names for suffix in suffixes}


def test_the_pages_load_nothing(text, supplement):
    for load in LOADS:
        assert not re.search(load, text + supplement), load


def test_the_pages_show_no_code_and_no_path(text, supplement, trees):
    shown = text + supplement
    assert not [words for words in ("report.show(", str(trees["page"].parent), str(ROOT)) if words in shown]


@pytest.mark.parametrize("kind", ["Table", "Figure"])
def test_captions_are_numbered_in_order(text, supplement, kind):
    found = [
        re.findall(rf"<figcaption><b>{kind}\s{letter}(\d+)\.</b> \w", part)
        for letter, part in (("", text), ("S", supplement))
    ]
    for numbers in found:
        assert list(map(int, numbers)) == list(range(1, len(numbers) + 1))
    assert len(found[0]) <= 10
    assert sum(map(len, found)) == {"Table": len(tables.every()), "Figure": len(figures.every())}[kind]


def test_a_page_is_no_larger_than_a_mail(text, supplement):
    assert max(len(text), len(supplement)) < 3_000_000


SECTIONS = [
    "Result",
    "Method",
    "Verification",
    "Speed and where it comes from",
    "Other libraries",
    "Learning",
    "Claims of the source documents",
    "Reproduction",
    "Limits",
    *(families.about(name)["title"] for name in families.names()),
    "References",
]


def headings(page):
    return re.findall(r"<h2[^>]*>.*?</span>(.*?)</h2>", page)


def test_the_sections_of_the_page_in_their_order(text, empty):
    assert headings(text) == headings(empty) == SECTIONS


def test_the_supplement_has_the_headings_of_what_it_holds(supplement):
    found = headings(supplement)
    assert found[:2] == ["Result", "Method"] and not {"Limits", "References"} & {*found}
    assert re.search(r'id="(table|figure)-', supplement.split(f"</span>{found[-1]}</h2>")[1])


def taken_apart(*parts):
    """The headings and words of the page and of its supplement, made of these parts."""
    body = f'<body>{build.PAGE.partition("[")[0]}">' + build.CONTENTS + "".join(parts)
    return [
        re.findall(r">([\w ]+)<", part.partition(build.CONTENTS)[2]) for part in build.taken_apart(body, "page.html")
    ]


def test_a_heading_goes_with_what_stands_below_it():
    aside = build.report.ASIDE
    page, other = taken_apart(
        "<h2>Both</h2><p>kept</p>",
        aside.format("<b>moved</b>"),
        "<h2>Parts</h2><h3>Here</h3><p>text</p><h3>There</h3>",
        aside.format("<b>far</b>"),
        aside.format("<b>off</b>"),
        "<h2>Moved</h2>\n",
        aside.format("<b>all</b>"),
        "<h2>Nothing</h2>",
        "<h2>Last</h2><p>end</p>",
    )
    assert page == ["Both", "kept", "Parts", "Here", "text", "Last", "end"]
    assert other == ["Both", "moved", "Parts", "There", "far", "off", "Moved", "all"]


def test_a_page_has_room_for_ten_of_a_kind(monkeypatch):
    monkeypatch.setattr(families, "names", lambda: tuple("abcdefg"))
    monkeypatch.setattr(families, "about", lambda name: {"page": [f"figure:{name}"]})
    shown = families.page()
    assert {f"table:{name}_environments" for name in "abcdefg"} <= shown
    assert "figure:family" in shown and "table:results" in shown
    for kind in ("figure", "table"):
        assert sum(one.startswith(kind) for one in shown) == families.MOST == 10


def test_a_long_table_is_folded_and_a_longer_one_only_a_file(tmp_path, monkeypatch):
    shown = {}
    for count in (SHORT, SHORT + 1, LONG, LONG + 1):
        frame = pd.DataFrame({"number": range(count)})
        table = typeset.Table("many", "Numbers.", (), lambda datasets, frame=frame: frame, folded=True)
        monkeypatch.setitem(tables.REGISTERED, "many", table)
        shown[count] = Report(tmp_path, tmp_path).table("many").data
    folded, rows = ({count: word in html for count, html in shown.items()} for word in ("<details>", "<td"))
    assert list(folded.values()) == [False, True, True, False]
    assert list(rows.values()) == [True, True, True, False]
    assert "501 rows, in the CSV file" in shown[LONG + 1]
    assert (tmp_path / "tables" / "many.csv").read_text().count("\n") == LONG + 2


def test_a_caption_has_at_most_two_sentences(loaded):
    for name, about in [*tables.every().items(), *figures.every().items()]:
        assert len(re.findall(r"[.!?](?:\s|$)", paper.caption(about, loaded["only_recorded"]))) <= 2, name


def test_captions_speak_of_a_gpu_where_a_machine_has_one(loaded):
    about = figures.every()["breakdown"]
    without, having = (paper.caption(about, loaded[tree]) for tree in ("nothing", "only_recorded"))
    assert "GPU" not in without and without.endswith("below the grey line.")
    assert having.endswith("below the grey line; a diamond marks where a GPU overtakes the port on the CPU.")


def test_the_page_is_dark_where_the_reader_asks_and_still_where_motion_is_reduced(text):
    css = text[: text.index("</style>")]
    dark = css[css.index("(prefers-color-scheme: dark)") :]
    assert "color-scheme: light dark" in css
    light = dict(re.findall(r"(--\w+): ([^;]+);", css[: css.index("@media")]))
    colours = {name for name, value in light.items() if re.match("#|rgb", value)}
    assert colours and colours == set(dict(re.findall(r"(--\w+): ([^;]+);", dark[: dark.index("}")])))
    assert re.findall(r"@media ([^{]*)\{[^{}]*\{[^{}]*scroll-behavior", css) == [
        "(prefers-reduced-motion: no-preference) "
    ]


def test_phones_show_the_contents_folded_and_paper_shows_none(text, supplement):
    for page in (text, supplement):
        assert '<input type="checkbox" id="contents"><label for="contents">' in page
    phone = text[text.index("(max-width: 40rem)") :]
    assert ".contents :not(:checked) + label + ol { display: none; }" in phone[: phone.index("@media print")]
    assert "size: A4" in text and ".file, details { display: none; }" in text


def test_no_word_of_a_page_is_banned(text, supplement, empty):
    words = re.sub(r"<style>.*?</style>|<svg.*?</svg>|<[^>]*>", " ", text + supplement + empty, flags=re.DOTALL)
    banned = r"asked properly|our figure|\bthe note\b|\bproved?\b|\bproof\b|so many times|\bis told\b|\bwell-?kept\b"
    assert re.findall(banned, words, re.IGNORECASE) == []


def test_figures_are_drawings_with_alternative_text(text, supplement):
    for name in figures.every():
        (drawing,) = re.findall(rf'id="figure-{name}">.*?(<svg[^>]*>)', text + supplement, re.DOTALL)
        assert 'role="img"' in drawing
        assert re.search(r'aria-label="[^"]{40,}"', drawing)


def test_ids_are_unique_and_links_arrive(page, text, supplement):
    ids = {name: re.findall(r'\bid="([^"]+)"', part) for name, part in (("", text), ("supplement.html", supplement))}
    for found in ids.values():
        assert len(found) == len(set(found))
    assert set(re.findall(r'<a [^>]*href="#([^"]+)"', text)) <= set(ids[""])
    assert set(re.findall(r'<a [^>]*href="#([^"]+)"', supplement)) <= set(ids["supplement.html"])
    across = re.findall(r'<a [^>]*href="supplement\.html#([^"]+)"', text)
    assert across and set(across) <= set(ids["supplement.html"])
    files = re.findall(r'<a [^>]*href="((?:tables|figures)/[^"]+)"', text + supplement)
    assert len(files) == len(tables.every()) + len(figures.every())
    assert all((page / file).is_file() for file in files)


def test_sections_are_numbered_and_in_the_contents(text):
    headings = re.findall(r'<h[23] id="section-([\d.]+)">', text)
    assert headings == re.findall(r'href="#section-([\d.]+)"', text)
    assert headings[:3] == ["1", "2", "2.1"]


def test_sections_of_the_supplement_have_numbers_apart(text, supplement):
    headings = re.findall(r'<h[23] id="section-([S\d.]+)"><span class="count">(S[\d.]+)</span>', supplement)
    assert headings[:3] == [("S1", "S1"), ("S2", "S2"), ("S2.1", "S2.1")]
    assert re.findall(r'href="#section-([S\d.]+)"><span>', supplement) == [number for number, _ in headings]
    assert "section-S" not in text


def test_the_text_holds_generated_figures(text):
    abstract = text[text.index('class="abstract"') : text.index("</header>")]
    assert "4 of 5 comparisons hold" in abstract
    assert "PPO solves CartPole-v1 in nine of ten seeds within 5.00\u00a0s." in abstract  # of 1, 2, 3, 4, 5, twice
    section = text[text.index(">Batch size</h3>") :]
    assert "300\u00a0k steps/s" in section
    assert "one call per step, on 2 threads" in section
    assert "3,000\u00d7 the original" in section
    assert "4.00\u00a0M steps/s in a CUDA graph" in section  # of the first recorded machine with a GPU, bare


def test_verification_says_what_is_not_judged(text):
    section = text[text.index(">Verification</h2>") :]
    assert "Comparisons that hold: 4 of 5 here." in section
    assert "without judging it: 1 here." in section
    assert "113 (99 \u2013 146)" in section[: section.index(">Speed and")]


def test_targets_that_are_missed_are_named(text):
    section = text[text.index(">Reproduction</h2>") : text.index(">Limits</h2>")]
    assert re.search(r"it met \d+ of \d+ here", section)
    assert (
        "cartpole: step at 8,192 environments, all cores, over Gymnasium's CartPoleVectorEnv at 8,192 (6.00\u00d7 here"
        in section
    )


def test_what_no_machine_has_measured_is_said_once(text):
    assert len(re.findall(r"No machine has measured \d+ targets? yet", text)) == 1


@pytest.mark.slow
def test_equal_results_give_equal_bytes(page, trees, tmp_path):
    build.build(tmp_path / "report.html", trees["page"])
    files = sorted(path.relative_to(page) for path in page.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert [file for file in files if (page / file).read_bytes() != (tmp_path / file).read_bytes()] == []


def test_a_figure_of_nothing_stands_in_the_supplement(pages, empty):
    drawings = {name: (pages["nothing"] / "figures" / f"{name}.svg").read_text() for name in ("family", "routing_day")}
    assert [figures.shows_nothing(drawing) for drawing in drawings.values()] == [True, False]  # a day needs no results
    assert [f'id="figure-{name}"' in empty for name in drawings] == [False, True]
    assert 'id="figure-family"' in (pages["nothing"] / "supplement.html").read_text(encoding="utf-8")


def test_without_results_the_page_says_so(pages, empty):
    assert "Nothing has been measured yet" in empty
    assert "measured here</span>" not in empty
    assert "not measured yet" in empty or (pages["nothing"] / "figures" / "throughput.svg").exists()


def test_an_edited_recorded_file_stops_the_build(tmp_path):
    handwritten.big(tmp_path)
    recorded = tmp_path / "results" / "recorded" / "big" / "cartpole" / "throughput.csv"
    recorded.write_text(recorded.read_text().replace("1000000", "2000000"))
    with pytest.raises(ChecksumError, match=r"throughput\.csv"):
        build.build(tmp_path / "page" / "report.html", tmp_path)
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("report", "must be called something.html"),
        ("kept.html", "cannot be written: Is a directory"),
        ("file/report.html", "cannot be written: "),
        ("blocked/report.html", "cannot be written: "),
    ],
)
def test_a_page_that_cannot_be_written_ends_in_one_sentence(output, message, trees, tmp_path):
    (tmp_path / "kept.html").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "tables").write_text("")
    with pytest.raises(UserError, match=message) as raised:
        build.build(tmp_path / output, trees["nothing"])
    assert "\n" not in str(raised.value)


def test_the_command_line_ends_in_that_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["build", "--output", str(tmp_path / "report")])
    with pytest.raises(SystemExit, match=r"^error: .*must be called something.html$"):
        command.run(build.main)


@pytest.mark.parametrize("key", paper.KEYS)
def test_provenance_that_lacks_a_key_ends_in_one_sentence(key, tmp_path):
    handwritten.here(tmp_path)
    about = tmp_path / "results" / "cartpole" / "throughput.json"
    described = json.loads(about.read_text())
    del described[key]
    about.write_text(json.dumps(described))
    with pytest.raises(UserError, match=rf"throughput\.json lacks {key}; measure again"):
        build.build(tmp_path / "page" / "report.html", tmp_path)


def test_chapters_are_stored_without_outputs():
    assert all(not cell.outputs and cell.execution_count is None for cell in NOTEBOOK.cells if cell.cell_type == "code")


@pytest.mark.parametrize("chapter", build.chapters(), ids=lambda file: f"{file.parents[1].name}-{file.stem}")
def test_a_chapter_runs_by_itself(chapter):
    """Whatever names its cells use they import or define."""
    known = {*dir(builtins), "display"}
    for cell in nbformat.read(chapter, as_version=4).cells:
        if cell.cell_type == "code":
            names = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)]
            known |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
            known |= {a.asname or a.name for n in ast.walk(ast.parse(cell.source)) for a in getattr(n, "names", ())}
            assert {name.id for name in names} <= known


def test_no_number_in_the_prose_was_typed():
    for cell in NOTEBOOK.cells:  # with what families say of originals and limits
        if cell.cell_type == "markdown":
            words = re.sub(r"\[@\w+\]|fp32|V2[VI]", "", cell.source)
        else:
            # Of code, the text of strings without what it interpolates.
            words = " ".join(re.findall(r'"""(.*?)"""', cell.source, re.DOTALL))
            words = re.sub(r"\{[^{}]*\}", "", words)
        assert not re.search(r"\d", words), words


def test_a_reference_to_what_is_not_shown_is_an_error():
    with pytest.raises(ValueError, match="table 'nowhere', which is not shown"):
        build.with_references("page.html", {"page.html": "see @table:nowhere", "supplement.html": ""})
    with pytest.raises(ValueError, match=r"cites 'nobody', which is not in references\.bib"):
        build.with_citations("as said [@nobody]")


def test_works_are_numbered_in_the_order_they_are_cited():
    body = build.with_citations("[@philox] [@barto1983] [@philox] <!-- references -->")
    assert re.findall(r">(\[\d\])<", body) == ["[1]", "[2]", "[1]"]
    assert body.index("easy as 1, 2, 3") < body.index("Neuronlike")


def test_many_authors_and_initials(text):
    works = build.bibliography(ROOT / "paper" / "references.bib")
    assert works["gymnasium"].startswith("Mark Towers, Ariel Kwiatkowski, Jordan Terry et al.\nGymnasium: A Standard ")
    assert "arXiv 2407.17032, 2024." in works["gymnasium"]
    assert "and Charles&nbsp;W. Anderson.\nNeuronlike" in works["barto1983"]
    assert "SMC-13(5):834\N{EN DASH}846, 1983." in works["barto1983"]
    assert not [work for work in works.values() if "others" in work or ".." in work]


BIBTEX = r"""
@string{jml = "Journal \& Letters"}
@article{one, author = "M{\"u}ller, A. and others", title = {An {MDP} is < L = lambda
  W}, journal = jml, volume = 3, pages = "1--8", year = 2001 }
"""


def test_an_entry_may_be_written_as_bibtex_allows(tmp_path):
    (tmp_path / "some.bib").write_text(BIBTEX)
    work = re.sub(r"<.?span[^>]*>", "", build.bibliography(tmp_path / "some.bib")["one"]).replace("\n", " ")
    place = "<em>Journal &amp; Letters</em>, 3:1\N{EN DASH}8, 2001."
    assert work == f"A.&nbsp;Müller et al. An MDP is &lt; L = lambda W. {place}"


def test_the_command_line_says_what_it_does(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["build", "--help"])
    with pytest.raises(SystemExit) as ended:
        build.main()
    assert ended.value.code == 0
    assert "results/report.html" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["partial", "failed"])
def test_partial_files_failures_and_tables_are_no_results(tmp_path, kind):
    folder = tmp_path / "results" / "cartpole"
    folder.mkdir(parents=True)
    (folder / f"throughput.{kind}.csv").write_text("a\n")
    (folder / f"throughput.{kind}.json").write_text("{}")
    (tmp_path / "results" / "tables").mkdir()
    (tmp_path / "results" / "tables" / "claims.csv").write_text("a\n")
    assert paper.load(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, number):
    file = tmp_path / "tables" / "one.csv"
    report.write(file, "before")
    with failing(Faults(1, number)), pytest.raises(UserError, match=r"one\.csv cannot be written: "):
        report.write(file, "after")
    assert file.read_text() == "before" and [one.name for one in file.parent.iterdir()] == ["one.csv"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("from lockstep.experiments import UserError\nraise UserError('the disk is full')", "^the disk is full$"),
        ("import os\nos.kill(os.getpid(), 9)", "^the process that runs the chapters was killed, perhaps for want of"),
    ],
)
def test_a_chapter_that_cannot_go_on_ends_in_a_sentence(tmp_path, source, sentence):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    with pytest.raises(UserError, match=sentence):
        build.executed(nb, ROOT, tmp_path, 1)
