"""What the pages say is there: their links, and the commands of README."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

FOLDERS = ("trainer", "launch", "infra", "notebooks", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
# Those that can be planned anywhere: Slurm's needs a Slurm, and the trainer trains.
PLANNED = ("launch.local", "launch.ec2", "launch.sagemaker")


def commands() -> list[str]:
    """Every launch of README's that is no verb, without its comment."""
    found = re.findall(r"python -m (launch\.\w+(?: [^`#|\n]*)?)", (ROOT / "README.md").read_text())
    lines = dict.fromkeys(line.strip() for line in found)
    return [line for line in lines if line.startswith(PLANNED) and re.match(r"\S+ --", line)]


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())]

    assert len(links) > 50
    assert [one for one in links if "://" not in one[1] and not (one[0].parent / one[1]).exists()] == []


def test_no_page_has_a_placeholder_left() -> None:
    assert [page for page in PAGES if re.search(r"^@[A-Z]+@$", page.read_text(), re.MULTILINE)] == []


# Each command line as its module is run, in one process: what they import takes longer than all else.
PLAN = """
import json, runpy, sys
for words in json.loads(sys.argv[1]):
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__")
    except SystemExit as error:
        assert not error.code, (words, error.code)
"""


def planned(line: str) -> list[str]:
    """Its words, with --dry-run."""
    words = [word for word in shlex.split(line) if word not in ("--rehearse", "--dry-run")]
    words.insert(words.index("--") if "--" in words else len(words), "--dry-run")
    return words


def test_readmes_launches_can_be_planned(tmp_path: Path) -> None:
    lines = [planned(line) for line in commands()]
    assert len(lines) > 5
    (tmp_path / "here").mkdir()
    (tmp_path / "here/train.py").touch()  # the user's own script
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-W", "ignore", "-c", PLAN, json.dumps(lines)]
    ended = subprocess.run(program, cwd=tmp_path / "here", env=env, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr


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
