"""README.md is short, and links between the pages of the repository arrive."""

import re
from pathlib import Path

import pytest

from lockstep.agents import recipes
from lockstep.paper import readme
from tests.test_packaging import ROOT, files_of

PAGES = [file.relative_to(ROOT).as_posix() for file in files_of(".md")]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub links to them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_arrive(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"https?:", link)]
    lost = []
    for link in links:
        path, _, anchor = link.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            lost.append(link)
    assert lost == []


def test_the_front_page_leads_to_every_page_of_docs_and_they_lead_back():
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in front
        assert "(../README.md)" in page.read_text(encoding="utf-8")


def test_the_page_on_training_has_a_row_for_each_recipe():
    page = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    rows = {name: ", ".join(sorted(recipes.load(name))) for name in recipes.names()}
    assert dict(re.findall(r"^\| (\w+) \| ((?:\w+, )*\w+) \|$", page, re.MULTILINE)) == rows


def test_the_front_page_is_short():
    """Its generated tables grow with the environments and machines, what is written must not."""
    written = readme.PART.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(written.splitlines()) <= 90 and len(written) <= 6000
