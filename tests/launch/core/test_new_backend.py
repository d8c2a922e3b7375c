"""A backend is added in one folder and one line: the folder `nothing` beside this file, and its line of the table."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

LINE = '    "nothing": "launch.nothing.backend",\n'
SWEEP = """
name: idle
backend: nothing
options: {nothing: {seats: 3}}
fixed: {model: cnn, dataset: synthetic, device: cpu}
grid: {gpus: [1, 2]}
"""
# Two jobs, as launch.doctor sees them on the embedded account: what it says of each, and its exit codes.
EXAMINE = """
import json
from tests.launch.doctor.account import Patient
said, codes = [], []
with Patient.opened() as patient:
    patient.job = ("--for", "nothing")
    for words in (["--seats", "2"], ["--seats", "10", "--json"]):
        codes.append(patient.type(*words))
        said += patient.said
print(json.dumps([codes, *said]))
"""
RULES = """
import launch
from tests import test_import_rules
assert "launch.nothing" in [name.rpartition(".")[0] for name in test_import_rules.BACKENDS.values()]
assert ("launch.nothing.__main__", "launch.core.cli") in test_import_rules.imports()
test_import_rules.test_backends_and_tools_stand_side_by_side_on_the_core()
test_import_rules.test_a_backend_is_a_folder_of_its_name_which_describes_it()
test_import_rules.test_no_tool_knows_a_backend_by_its_name()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout with the new backend.  Nothing else of it is another."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "launch", folder / "launch")  # with its bytecode, which is as good there
    for other in ("trainer", "infra", "pyproject.toml"):
        (folder / other).symlink_to(ROOT / other)
    shutil.copytree(Path(__file__).parent / "nothing", folder / "launch/nothing")
    table = folder / "launch/core/backend.py"
    head, begin, rest = table.read_text().partition("BACKENDS = {\n")
    table.write_text(head + begin + rest.replace("}", f"{LINE}}}", 1))
    assert f"{LINE}}}" in table.read_text()
    return folder


def python(checkout: Path, *words: str) -> str:
    """What `python words...` prints with the new backend."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{ROOT}"}
    ended = subprocess.run([sys.executable, *words], cwd=checkout, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_it_has_a_command_and_is_listed_among_the_others(checkout: Path) -> None:
    help_text = python(checkout, "-m", "launch.nothing", "--help-all")

    assert {"--seats", "--dry-run", "--model"} <= set(help_text.split())
    assert "nothing    nowhere, for nothing" in python(checkout, "-m", "launch", "--help")


def test_it_plans_runs_and_says_how_it_ended(checkout: Path) -> None:
    words = ("-m", "launch.nothing", "--seats", "2", "--model", "cnn")

    assert json.loads(python(checkout, *words, "--dry-run=json")) == "2 processes do not train digits-cnn"
    python(checkout, *words, "--outcome", "ended")
    assert json.loads((checkout / "ended/outcome.json").read_text())["exit_code"] == 0


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["status"], "1 jobs\n"),
        (["status", "one"], "job one\n"),
        (["logs", "one", "--follow"], "epoch 1\none has ended\n"),
        (["stop", "--all", "--yes"], ""),
        (["leaks"], "  job  region\n"),
    ],
)
def test_it_has_the_verbs_of_every_backend(checkout: Path, words: list[str], printed: str) -> None:
    assert python(checkout, "-m", "launch.nothing", *words).startswith(printed)


def test_a_sweep_plans_runs_on_it(checkout: Path) -> None:
    (checkout / "idle.yaml").write_text(SWEEP)

    plan = json.loads(python(checkout, "-m", "launch.sweep", "idle.yaml", "--dry-run=json"))

    assert plan["backend"] == "nothing"
    assert [(run["replicas"], run["argv"][0]) for run in plan["runs"]] == [(1, "--seats=1"), (2, "--seats=2")]


def test_the_doctor_takes_its_flags(checkout: Path) -> None:
    help_text = python(checkout, "-m", "launch.doctor", "--for", "nothing", "--help")

    assert "ec2|sagemaker|nothing" in help_text
    assert "--seats" in help_text.split()


@pytest.mark.slow("launch.doctor makes the checks of a new backend")
def test_the_doctor_makes_its_check_among_those_of_every_job(checkout: Path) -> None:
    codes, text, report = json.loads(python(checkout, "-c", EXAMINE))
    findings = json.loads(report)["findings"]

    assert codes == [0, 4]
    assert re.search(r"^  seats +ok +2 of 9, free in us-east-1$", text, re.MULTILINE)
    assert [row["check"] for row in findings] == [
        "credentials", "clock", "stack", "bucket", "bucket's key", "seats", "budget"
    ]  # fmt: skip
    assert [row["remedy"] for row in findings if row["state"] == "missing"] == ["--seats 9"]


def test_the_import_rules_hold_for_it(checkout: Path) -> None:
    python(checkout, "-c", RULES)
