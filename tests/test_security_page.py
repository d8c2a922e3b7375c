"""SECURITY.md names what shows its claims: files that are there.  And what it says of installing is so."""

import re

from tests.conftest import ROOT


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
    assert not any(re.search(r"pip install (-U )?aws-ddp-toolkit", path.read_text()) for path in files)
