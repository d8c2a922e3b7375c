"""What the toolkit is made of: lists of software that others can read, and licences that a company can take."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.container import sbom
from infra.container.pins import read_lock
from tests.conftest import ROOT
from tests.test_locks import depended_on_by, version, wanted

# What a user, a job, an image, a notebook or an instance of ours installs; the rest are tools of the tests.
LOCKS = ("notebook", "publish", "rehearse", "sagemaker", "tracker-mlflow", "tracker-mlflow-server",
         "tracker-tensorboard", "tracker-wandb")  # fmt: skip
# Extras of pyproject.toml that have no lock of their own.
EXTRAS = ("console", "onnx", "sagemaker")
# Licences that ask for no more than a notice, or, where a library is only used as it is, for no more than its own
# source.  As packages name them, in their own words.
TAKEN = frozenset({
    "0BSD", "3-Clause BSD License", "Apache 2.0", "Apache License, Version 2.0", "Apache Software License",
    "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD License", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "ISC", "ISC License (ISCL)", "MIT", "MIT License", "MIT-0", "MIT-CMU",
    "Mozilla Public License 2.0 (MPL 2.0)", "MPL-2.0", "PSF-2.0", "Public Domain",
    "Python Software Foundation License", "Zlib",
})  # fmt: skip
# NVIDIA's own, for what torch runs on the GPU: https://docs.nvidia.com/cuda/eula/  They come with torch from PyPI.
OF_NVIDIA = ("LicenseRef-NVIDIA-Proprietary", "NVIDIA Proprietary Software")
# Packages that say nothing in their metadata, or more than one thing: read by hand.
READ = {
    "cuda-toolkit": "LicenseRef-NVIDIA-Proprietary",  # a list of NVIDIA's other packages, without files
    "docutils": "Public Domain AND BSD-2-Clause",  # what it names besides is an Emacs mode, which is in no wheel
}
# Whatever tests run on; a newer Python needs less.
LINUX = {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux", "platform_machine": "x86_64",
         "python_version": "3.11", "python_full_version": "3.11.9", "implementation_name": "cpython",
         "platform_python_implementation": "CPython"}  # fmt: skip
ELSEWHERE = dict(
    line.split(": ", 1) for line in (ROOT / "tests/licences.txt").read_text().splitlines() if not line.startswith("#")
)


def runtime() -> dict[str, str]:
    """Their lines in the locks, by name, but for what only other systems have."""
    found = {name: line for lock in LOCKS for name, line in lines_of(lock).items()}
    every, queue = lines_of("test"), [*itertools.chain.from_iterable(map(wanted, EXTRAS))]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found[name] = every[name]
            queue += depended_on_by(requirement)
    return dict(sorted(found.items()))


def lines_of(lock: str) -> dict[str, str]:
    every = read_lock((ROOT / f"infra/locks/{lock}.txt").read_text())
    return {name: line for name, line in every.items() if is_for_linux(line)}


def is_for_linux(line: str) -> bool:
    marker = Requirement(line.split("\\")[0]).marker
    return marker is None or marker.evaluate(LINUX)


def licence(name: str, line: str) -> str:
    """In the same words whatever is installed beside what `make test` needs."""
    if found := READ.get(name) or ELSEWHERE.get(f"{name}=={version(line)}"):
        return found
    try:
        return sbom.licence_of(distribution(name))
    except PackageNotFoundError:
        return "not read"


def judged(name: str, words: str) -> str:
    """Why a package cannot be taken; "" if it can: each licence that it names, in whatever way, is one of the list."""
    terms = re.split(r" AND | OR |, (?!Version)", words)
    taken = TAKEN | set(OF_NVIDIA) if name.startswith(("nvidia-", "cuda-")) else TAKEN
    if taken.issuperset(terms):
        return ""
    return f"{name}: {words or 'says nothing'}"


def test_every_licence_is_one_that_a_company_can_take() -> None:
    problems = [judged(name, licence(name, line)) for name, line in runtime().items()]

    assert [problem for problem in problems if problem] == []


def test_what_the_tests_do_not_install_was_read_in_its_locked_version() -> None:
    installed = lines_of("test")
    others = {f"{name}=={version(line)}" for name, line in runtime().items() if name not in {*installed, *READ}}

    assert others == set(ELSEWHERE), "tests/licences.txt"


def test_the_licences_are_listed(golden: Callable[[str, str], None]) -> None:
    """The table, for the people who must approve them: pytest --write-golden writes it anew."""
    golden("licences.txt", "".join(f"{name}: {licence(name, line)}\n" for name, line in runtime().items()))


AUDIT = Path(sys.executable).parent.parent / "pip-audit/bin"


@pytest.mark.skipif(not AUDIT.exists(), reason="needs pip-audit: make .venv/pip-audit")
@pytest.mark.slow("no pinned version has a known vulnerability")
def test_no_pinned_version_has_a_known_vulnerability() -> None:
    ended = subprocess.run(["make", "audit"], cwd=ROOT, capture_output=True, text=True, check=False)

    if ended.returncode and "cannot get PyPI's advisories" in ended.stdout:
        pytest.skip("needs access to PyPI's advisories")
    assert ended.returncode == 0, ended.stdout + ended.stderr


AUDITOR = """#!/bin/sh
cat "$4" && ! grep -q '^urllib3==' "$4"
"""


def test_every_pinned_version_is_looked_up_and_a_vulnerable_one_fails(tmp_path: Path) -> None:
    """By a pip-audit that says what it was asked, and knows something of urllib3."""
    auditor = tmp_path / ".venv/pip-audit/bin/python"
    auditor.parent.mkdir(parents=True)
    auditor.write_text(AUDITOR)
    auditor.chmod(0o755)
    shutil.copytree(ROOT / "infra/locks", tmp_path / "infra/locks")
    for name in ("Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    there = [word for name in (".venv/pip-audit", ".venv/.installed") for word in ("-o", name)]

    ended = subprocess.run(["make", *there, "audit"], cwd=tmp_path, capture_output=True, text=True, check=False)

    pinned = {(name, version(line)) for path in (ROOT / "infra/locks").glob("*.txt")
              for name, line in read_lock(path.read_text()).items()}  # fmt: skip
    asked = {
        (canonicalize_name(name), number) for name, number in re.findall(r"^(\S+)==(\S+)$", ended.stdout, re.MULTILINE)
    }
    assert pinned <= asked
    assert ended.returncode != 0


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
