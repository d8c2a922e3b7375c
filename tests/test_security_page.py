"""SECURITY.md names what shows its claims: tests that are there.  And what it says of installing is so."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.figures import threats
from tests.figures.test_how_it_works import words

HEADINGS = ("| claim | limit | shown by |", "| --- | --- | --- |")


def protected() -> str:
    """The chapters of what is protected, before that of what is not."""
    return (ROOT / "SECURITY.md").read_text().partition("\n## Not protected")[0]


def claims() -> list[list[str]]:
    """The rows of all tables: claim, limit, shown by."""
    rows = [line for line in protected().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows if row not in HEADINGS]


def unresolved(name: str) -> str:
    """Why a reference such as tests/a/test_b.py::test_c leads to no test; "" if it does."""
    place, _, test = name.partition("::")
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    text = "".join(file.read_text() for file in files)
    if not re.search(rf"^ *def {test}\(" if test else "^ *def test_", text, re.MULTILINE):
        return f"{name}: no such test"
    return ""


@pytest.mark.parametrize("row", claims(), ids=lambda row: row[0][:40])
def test_every_claim_has_a_test_that_is_there_and_a_limit(row: list[str]) -> None:
    claim, limit, tests = row
    assert claim.endswith(".")
    assert limit
    shown = re.findall(r"`(tests/[^`]+)`", tests)
    assert shown
    assert [problem for name in shown if (problem := unresolved(name))] == []


def test_every_table_is_one_of_claims_and_every_section_says_who_comes_at_it() -> None:
    for section in re.split(r"^### ", protected(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        assert text.startswith("*From "), title
        assert text.count("\n".join(HEADINGS)) == 1, title
    assert len(claims()) > 80


def test_a_claim_whose_test_is_gone_is_noticed() -> None:
    assert (
        unresolved("tests/test_security_page.py::test_gone") == "tests/test_security_page.py::test_gone: no such test"
    )
    assert unresolved("tests/test_security_page.py::test_a_claim_whose_test") != ""  # that is another's beginning
    assert unresolved("tests/golden") == "tests/golden: no such test"


def test_every_section_is_behind_its_boundary_in_the_figure(tmp_path: Path) -> None:
    chapters = [chapter.splitlines() for chapter in re.split(r"^## ", protected(), flags=re.MULTILINE)[1:]]
    written = {lines[0]: [line[4:] for line in lines if line.startswith("### ")] for lines in chapters}

    assert {zone.name: list(zone.sections) for zone in threats.ZONES} == written

    threats.draw(tmp_path / "now.svg")

    assert words(tmp_path / "now.svg") == words(threats.TARGET), "run python -m tests.figures.threats"


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:tests|infra|launch)/[\w./]+|constraints\.txt)`", (ROOT / "SECURITY.md").read_text())

    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_message_and_page_installs_from_the_checkout_with_pinned_versions() -> None:
    """Our name may be a stranger's on PyPI, and a version that is not pinned is whatever is newest."""
    folders = ("trainer", "launch", "infra", "notebooks")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".ipynb")
    ]
    said = [
        (path.name, line)
        for path in [ROOT / "README.md", *files]
        for line in re.findall(r"pip install [^`\n]*'\.\[[^`\n]*", path.read_text())
    ]

    assert len(said) > 8
    assert [one for one in said if not one[1].startswith("pip install -c constraints.txt -e '.[")] == []
    ours = re.compile(r"pip3? install[^`\n]*\baws.ddp.toolkit(?![\w/-])", re.IGNORECASE)  # also quoted, with extras
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *files]
    assert [(path.name, found[0]) for path in pages if (found := ours.search(path.read_text()))] == []
