"""SECURITY.md names what shows its claims: tests that are there.  And what it says of installing is so."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.figures import threats
from tests.figures.test_how_it_works import words


def claims() -> list[list[str]]:
    """The rows of the table: what, from whom, how, shown by, limit."""
    table = (ROOT / "SECURITY.md").read_text().partition("## Protected")[2].partition("## Not protected")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| what |", "| ---"))]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def unresolved(name: str) -> str:
    """Why a reference such as tests/a/test_b.py::test_c leads to no test; "" if it does."""
    place, _, test = name.partition("::")
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    text = "".join(file.read_text() for file in files)
    if not re.search(rf"^ *def {test or 'test_'}", text, re.MULTILINE):
        return f"{name}: no such test"
    return ""


@pytest.mark.parametrize("row", claims(), ids=lambda row: row[0][:40])
def test_every_claim_has_a_test_that_is_there_and_a_limit(row: list[str]) -> None:
    assert len(row) == 5
    shown = re.findall(r"`(tests/[^`]+)`", row[3])
    assert shown
    assert [problem for name in shown if (problem := unresolved(name))] == []
    assert row[4]


def test_a_claim_whose_test_is_gone_is_noticed() -> None:
    assert (
        unresolved("tests/test_security_page.py::test_gone") == "tests/test_security_page.py::test_gone: no such test"
    )
    assert unresolved("tests/golden") == "tests/golden: no such test"


def test_every_claim_is_behind_one_boundary_of_the_figure(tmp_path: Path) -> None:
    assert sorted(row for zone in threats.ZONES for row in zone.rows) == sorted(row[0] for row in claims())

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
