"""Import rules that follow from the table of backends, those that import-linter cannot see, and what help takes."""

import ast
import os
import resource
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache

import grimp
import pytest

from launch.__main__ import TOOLS
from launch.core.backend import BACKENDS
from tests.conftest import ROOT

HEAVY = ["torch", "torchvision", "numpy", "PIL", "sklearn", "matplotlib", "boto3", "botocore"]
TORCH_FREE = ["", ".config", ".contract", ".datasets", ".datasets.manifest", ".distributed.ranks",
              ".errors", ".models", ".optimizers", ".script.config", ".script.pace", ".settings.argparser",
              ".settings.checks", ".settings.flags", ".strategies", ".terminal"]  # fmt: skip
PYDANTIC_S = 0.09  # of the processor, on a quiet machine of two cores where all of --help takes 0.15 to 0.25 s
COMMANDS = ["trainer", "trainer.script", "launch", "launch.ec2", "launch.sweep"]


# The embedded AWS is moto, which is written on boto3: only what rehearses loads it.
EMBEDDED = ("launch.rehearse.accounts", "launch.rehearse.aws", "launch.rehearse.ec2",
            "launch.rehearse.nodes.ec2.watcher", "launch.rehearse.nodes.fargate",
            "launch.rehearse.nodes.sagemaker",
            "launch.rehearse.sagemaker")  # fmt: skip


def loaded_by(modules: list[str]) -> list[str]:
    """Which of HEAVY a fresh process has loaded after importing `modules`."""
    program = f"import sys, {', '.join(modules)}; print(*(m for m in {HEAVY} if m in sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.split()


def test_no_module_of_launch_loads_anything_heavy() -> None:
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "launch").rglob("*.py")]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files]

    assert "launch.local.__main__" in modules
    assert "launch.rehearse.rehearsal" in modules
    assert loaded_by([name for name in modules if not name.startswith(EMBEDDED)]) == []


def test_what_launch_may_import_of_trainer_loads_anything_heavy_neither() -> None:
    assert loaded_by([f"trainer{name}" for name in TORCH_FREE]) == []


def test_the_trainers_settings_need_nothing_heavy_to_be_checked() -> None:
    assert loaded_by(["trainer.__main__", "trainer.container", "trainer.sagemaker", "trainer.script.__main__"]) == []


def test_a_rank_of_a_script_starts_without_what_few_scripts_need() -> None:
    """Most have no packages to install, and torch is the script's own business."""
    run = "from trainer.script import __main__; __main__.parse(['--run-dir', 'x', '--', 't.py'])"
    program = f"import sys; {run}; print(*(m for m in ['torch', 'trainer.script.packages'] if m in sys.modules))"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_takes_under_a_third_of_a_second(command: str) -> None:
    assert any(spent < 0.3 for spent in quiet_seconds("-m", command, "--help"))


def quiet_seconds(*words: str) -> Iterator[float]:
    """What `python words` takes of the processor on a machine that does nothing else, in s: seven measurements.

    pydantic's import, much of what a command takes, is slowed as much by whatever else this machine does.
    """
    _cpu_seconds(*words)  # the first time, Python compiles
    for _ in range(7):
        yield _cpu_seconds(*words) / _cpu_seconds("-c", "import pydantic.main") * PYDANTIC_S


def _cpu_seconds(*words: str) -> float:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # in microseconds, where os.times() has hundredths
    subprocess.run([sys.executable, *words], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


# ---- backends, tools and the core

# A launcher's --rehearse, imported only when it is given; and verbs that look for a job on every backend.
EXCEPTIONS = {
    ("launch.core.cli", "rehearse"),
    ("launch.__main__", "all_jobs"),
    ("launch.all_jobs", "api"),
    ("launch.console", "all_jobs"),
    ("launch.console", "api"),
    ("launch.console", "report"),
}
SHARED = {"core": (), "aws": ("core",)}  # what a room may import; the others: both


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Every import of one module of launch by another: importer, imported."""
    graph = grimp.build_graph("launch", cache_dir=None)
    return frozenset(
        (module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)
    )


def room(module: str) -> str:
    """The folder of launch that a module is in, or the module's own name: launch.ec2.plan is in ec2."""
    return module.split(".")[1] if "." in module else ""


def forbidden(pairs: Collection[tuple[str, str]]) -> list[str]:
    """The imports that break a rule: all may import core and aws, core nothing of launch, and aws only core.

    So a backend imports no other, and tools such as the sweep find them in the core's table.
    """
    return sorted(
        f"{importer} -> {imported}"
        for importer, imported in pairs
        if room(importer) != room(imported)
        and room(imported) not in SHARED.get(room(importer), ("core", "aws"))
        and not any(importer.startswith(who) and room(imported) == what for who, what in EXCEPTIONS)
    )


def test_backends_and_tools_stand_side_by_side_on_the_core() -> None:
    assert {("launch.ec2.__main__", "launch.core.cli"), ("launch.sweep.__main__", "launch.core.verbs")} <= imports()
    assert forbidden(imports()) == []


def test_a_backend_is_a_folder_of_its_name_which_describes_it() -> None:
    assert {name: f"launch.{name}.backend" for name in BACKENDS} == BACKENDS


# Words that happen to be a backend's name, by file: a sweep's usual place, images' targets, files of infra/iam.
WORDS = {("launch/sweep/grid.py", "local"), ("launch/image/options.py", "sagemaker"),
         ("launch/image/commands.py", "sagemaker"), ("launch/image/commands.py", "ec2"),
         ("launch/infra/template.py", "sagemaker")}  # fmt: skip


def names_in(program: str) -> set[str]:
    """The backends that a program names by a string, but for those that are the service of a request to AWS."""
    nodes = list(ast.walk(ast.parse(program)))
    first = {id(node.args[0]) for node in nodes if isinstance(node, ast.Call) and node.args}
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in first}
    return {name for name in BACKENDS if name in words}


def test_no_tool_knows_a_backend_by_its_name() -> None:
    """What differs between them is in their descriptions."""
    files = [path for tool in TOOLS for path in (ROOT / "launch" / tool).rglob("*.py")]
    found = {(str(path.relative_to(ROOT)), name) for path in files for name in names_in(path.read_text())}

    assert found == WORDS
    assert names_in('if backend == "ec2": aws.call("sagemaker", "ListTags")') == {"ec2"}
