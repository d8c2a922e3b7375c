"""What the toolkit is made of: lists of software that others can read, and licences that a company can take."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from infra.container import sbom
from infra.container.pins import read_lock
from tests.conftest import ROOT

# Licences that ask for no more than a notice, or, where a library is only used as it is, for no more than its own
# source.  As packages name them, in their own words.
FREELY = re.compile(
    r"(?i)\b(apache|bsd|mit|mit-0|isc|python software foundation|psf|psfl|zlib|unlicense|hpnd|mpl|mozilla|cc0|0bsd|"
    r"public domain|zpl|cmu|dfsg|libpng|historical permission)"
)
STRICTLY = re.compile(r"(?i)\b(agpl|sspl|busl|commons clause|affero|(?<!l)gpl|(?<!lesser )general public)")
# NVIDIA's own, for what torch runs on the GPU: https://docs.nvidia.com/cuda/eula/  They come with torch from PyPI.
OF_NVIDIA = re.compile(r"^(nvidia|cuda)-")
# Packages that say nothing in their metadata, or more than one thing: read by hand.
READ = {
    "docutils": "Public Domain AND BSD-2-Clause",  # what it names besides is an Emacs mode, which is in no wheel
}


def runtime() -> list[str]:
    """What the lock of the image holds, which is all that `pip install` of the wheel brings."""
    return sorted(read_lock((ROOT / "infra/locks/rehearse.txt").read_text()))


def licence(name: str) -> str:
    try:
        return sbom.licence_of(distribution(name))
    except PackageNotFoundError:  # for another system
        return "not installed here"


def judged(name: str) -> str:
    """Why a package cannot be taken; "" if it can."""
    words = READ.get(name) or licence(name)
    if words == "not installed here" or OF_NVIDIA.match(name):
        return ""
    if STRICTLY.search(words):
        return f"{name}: {words}"
    return "" if FREELY.search(words) else f"{name}: {words or 'says nothing'}"


def test_every_licence_is_one_that_a_company_can_take() -> None:
    assert [problem for problem in map(judged, runtime()) if problem] == []


def test_the_licences_are_listed(golden: Callable[[str, str], None]) -> None:
    """The table, for whoever must approve them: pytest --write-golden writes it anew."""
    rows = [f"{name}: {READ.get(name) or licence(name)}\n" for name in runtime()]

    golden("licences.txt", "".join(rows))


def test_a_licence_that_asks_for_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READ, "boto3", "GNU Affero General Public License v3")
    monkeypatch.setitem(READ, "numpy", "Ask us")

    assert [problem for problem in map(judged, runtime()) if problem] == [
        "boto3: GNU Affero General Public License v3", "numpy: Ask us",
    ]  # fmt: skip


AUDIT = Path(sys.executable).parent.parent / "pip-audit/bin"


@pytest.mark.skipif(not AUDIT.exists(), reason="needs pip-audit: make .venv/pip-audit")
@pytest.mark.slow("no pinned version has a known vulnerability")
def test_no_pinned_version_has_a_known_vulnerability() -> None:
    ended = subprocess.run(["make", "audit"], cwd=ROOT, capture_output=True, text=True, check=False)

    if ended.returncode and "cannot be had" in ended.stdout:
        pytest.skip("needs PyPI's advisories, which cannot be had here")
    assert ended.returncode == 0, ended.stdout + ended.stderr


OF_A_LOCK = sbom.locked((ROOT / "infra/locks/sagemaker.txt").read_text())


@pytest.mark.parametrize("components", [sbom.installed(), OF_A_LOCK], ids=["installed", "lock"])
def test_the_list_of_software_is_cyclonedx(components: list[dict[str, object]]) -> None:
    text = json.dumps(sbom.document(components, "1"))

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_it_names_everything_with_the_hashes_of_the_lock() -> None:
    text = (ROOT / "infra/locks/notebook.txt").read_text()

    rows = {str(row["name"]): row for row in sbom.locked(text)}

    assert set(rows) == set(read_lock(text))
    (files,) = rows["simplejpeg"]["externalReferences"]
    assert [f"sha256:{one['content']}" for one in files["hashes"]] == re.findall(
        r"sha256:\w+", read_lock(text)["simplejpeg"]
    )


def test_what_is_installed_is_named_once_and_without_the_toolkit_itself() -> None:
    names = [row["name"] for row in sbom.installed()]

    assert {"torch", "numpy", "pydantic"} <= set(names)
    assert len(names) == len(set(names))
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] not in names
