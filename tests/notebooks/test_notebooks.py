"""The notebooks: run from top to bottom with small settings, and as they are committed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import launch.sagemaker as training
from launch.core import runs
from launch.report.findings import find
from launch.report.series import speedup
from tests.conftest import ROOT
from tests.listening import watching
from tests.notebooks.run import (
    FOLDER,
    NAMES,
    Notebook,
    account_here,
    aws_here,
    execute,
    faults,
    read,
    shown,
    with_parameters,
)

# What a reader has or installs beside Python and this toolkit's own `launch`.
MAY_IMPORT = {"matplotlib", "torch", "IPython", "PIL", "sklearn", "launch", "sagemaker"}
# They only start jobs, so they do without PyTorch.
LIGHT = ("sagemaker",)


def code(notebook: Notebook) -> list[Notebook]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(notebook: Notebook) -> str:
    return "\n".join(shown(cell) for cell in code(notebook))


def pictures(notebook: Notebook) -> int:
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def kinds_shown(notebook: Notebook) -> list[set[str]]:
    """What kinds of output each cell has."""
    return [
        {"picture" if "image/png" in o.get("data", {}) else "text" for o in cell.outputs} for cell in code(notebook)
    ]


def losses(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"^epoch .* loss (\d+\.\d+)  accuracy", text, re.MULTILINE)]


@pytest.mark.slow("the notebook of SageMaker trains on demand and on spot capacity with AWS's own toolkit")
def test_sagemaker_trains_on_demand_and_on_spot_and_leaves_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    small = {"epochs": 2, "settings": {"lr": 0.05, "max_hours": 1, "threads": 1, "probe_steps": 0}, "poll_s": 0.5}
    with aws_here(tmp_path / "sagemaker", ranks=1) as agent:
        notebook = execute(with_parameters(read("sagemaker"), **small), work)
        jobs = agent.account.jobs
        assert [(job.status, job.is_spot) for job in jobs.values()] == [("Completed", False), ("Completed", True)]
        assert agent.account.left() == []

    text = text_of(notebook)
    first, second, *again = losses(text)
    assert first > second > 0
    assert again == [first, second]  # the same training
    assert text.count("7.09 USD per hour on demand") == 3
    assert re.search(r"^spot +\d+\.\d% +\d+ s +\d+ s +0\.\d+ USD +[67]\d%$", text, re.MULTILINE)
    assert "no leaks: nothing is running" in text
    assert pictures(notebook) == 1
    assert "[METRIC]" not in text
    assert "sagemaker-training-toolkit" not in text
    assert faults(notebook) == []
    assert kinds_shown(notebook) == kinds_shown(read("sagemaker"))
    (result,) = (work / "runs").iterdir()
    assert torch.load(result / "model.pt", weights_only=True)


@pytest.mark.slow("the notebook for one GPU measures precision, batch size and workers, and trains with the best")
def test_single_gpu_measures_chooses_and_trains(tmp_path: Path) -> None:
    small = {"image_size": 72, "jpegs": 100, "jpeg_side": 96, "trial_images": 64, "batch_sizes": [8, 16],
             "workers": [1], "epochs": 2}  # fmt: skip
    with watching(os.getpid()) as listening:
        notebook = execute(with_parameters(read("single_gpu"), **small), tmp_path)

    assert listening  # the kernel's own, each message of which is signed
    assert [socket for socket in listening if not socket.is_loopback] == []
    text = text_of(notebook)
    assert "80 training and 20 evaluation images of 72 px" in text
    first, second = losses(text)
    assert first > second > 0
    assert re.search(r"^ +8 +[\d,]+\.\d +[\d,]+\.\d +[\d,]+\.\d +[\d,]+\.\d +(-|\d+\.\d)$", text, re.MULTILINE)
    assert re.search(r"^batch size (8|16): ", text, re.MULTILINE)
    assert re.search(r"^workers 1: ", text, re.MULTILINE)
    assert pictures(notebook) == 3
    assert faults(notebook) == []
    assert kinds_shown(notebook) == kinds_shown(read("single_gpu"))
    assert (tmp_path / "runs/single-gpu/model.pt").exists()


@pytest.mark.parametrize("name", LIGHT)
def test_the_saved_plan_is_the_one_that_the_code_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Later cells show seconds and losses of that day; the plan is the same on every day."""
    cells = code(read(name))
    place = next(place for place, cell in enumerate(cells) if "print(plan.brief)" in cell.source)
    with account_here():
        # The cells of parameters and of the plan; the first one imports what draws.
        exec("\n".join(cell.source for cell in cells[1 : place + 1]), {"training": training})

    def timeless(text: str) -> str:
        text = re.sub(r"warning: .* security patches .*", "", text)  # in an image's last 90 days
        return re.sub(r"\d{8}-\d{6}(-[a-z2-7]{5})?", "<time>", text).strip()

    assert timeless(capsys.readouterr().out) == timeless(shown(cells[place]))


@pytest.mark.slow("a notebook that only starts jobs plans them without PyTorch")
@pytest.mark.parametrize("name", LIGHT)
def test_a_notebook_that_only_starts_jobs_plans_with_what_its_requirements_name(name: str, tmp_path: Path) -> None:
    """Without PyTorch, and without anything else that the file does not name or that these do not need."""
    cells = code(read(name))
    place = next(place for place, cell in enumerate(cells) if "print(plan.brief)" in cell.source)
    program = "\n".join([BLOCKED, *(cell.source for cell in cells[: place + 1])])
    files = ROOT / "infra/sagemaker/notebook.txt"
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(tmp_path), "MPLBACKEND": "agg",
           "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program, files], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "problem: no AWS credentials" in done.stdout


# Makes the import of a module fail whose package does not follow from the file.
BLOCKED = """
import sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as name_of
lines = [line for line in open(sys.argv[1]).read().splitlines() if line[:1] not in ("#", "-")]
queue, known = [Requirement(line) for line in lines], {"ipython", "ipykernel", "matplotlib-inline"}
while queue:
    one = queue.pop()
    if name_of(one.name) not in known:
        known.add(name_of(one.name))
        try:
            others = map(Requirement, requires(one.name) or [])
        except ImportError:
            continue
        extras = ("", *one.extras)
        queue += [o for o in others if o.marker is None or any(o.marker.evaluate({"extra": e}) for e in extras)]
class Blocked:
    def find_spec(self, name, path=None, target=None):
        owners = packages.get(name)
        if owners and not {name_of(owner) for owner in owners} & (known | {"aws-ddp-toolkit"}):
            raise ModuleNotFoundError(f"{name} is not in the notebook's requirements", name=name)
packages = packages_distributions()
sys.meta_path.insert(0, Blocked())
"""


def test_scaling_analysis_reckons_by_hand_what_the_report_says(tmp_path: Path) -> None:
    notebook = execute(read("scaling_analysis"), tmp_path)

    text = text_of(notebook)
    found = find(runs.find([FOLDER / "scaling_runs"]))
    for one in found.series:
        if one.label == "ddp" and (one.kind, one.batch) in (("weak", 64), ("strong", 128)):
            rate, fast = one.points[-1].images_per_s, speedup(one.points[-1], one.base)
            assert rate is not None
            assert fast is not None
            serial = next(law.serial for other, law in found.laws if other is one)
            assert re.search(
                rf"^{one.kind} +2 ranks +{rate.value:,.0f} images/s  speedup {fast.value:.2f} ", text, re.M
            )
            assert re.search(rf"^{one.kind} +serial part +{serial:.1%}, ", text, re.MULTILINE)
    assert "19 of 20 runs have numbers" in text
    assert re.search(r"^too-large +failed +the training set has 1437 images", text, re.MULTILINE)
    assert pictures(notebook) == 2
    assert faults(notebook) == []
    assert kinds_shown(notebook) == kinds_shown(read("scaling_analysis"))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_was_run_from_top_to_bottom_and_shows_nothing_of_the_machine(name: str) -> None:
    notebook = read(name)
    assert faults(notebook) == []
    assert any(cell.outputs for cell in code(notebook))
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_imports_only_what_its_reader_has(name: str) -> None:
    tree = ast.parse("\n".join(cell.source for cell in code(read(name))))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in imported} - sys.stdlib_module_names <= MAY_IMPORT
    # From `launch` itself come its backends; what they export is public.
    assert {module for module in imported if module.startswith("launch")} <= {"launch", "launch.sagemaker"}
    private = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    assert private == []


def test_a_notebook_shows_an_error_as_one_sentence(tmp_path: Path) -> None:
    notebook = read("single_gpu")
    notebook.cells = [code(notebook)[0], code(notebook)[1]]
    notebook.cells[
        1
    ].source = "try:\n    local.train(epoch=2)\nexcept local.TrainerError:\n    get_ipython().showtraceback()"
    (output,) = execute(notebook, tmp_path).cells[1].outputs
    assert output.traceback == ["SettingsError: unknown setting 'epoch'; did you mean 'epochs'?"]
