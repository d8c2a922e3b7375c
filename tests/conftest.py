"""What all tests share: running the trainer as a user does."""

import atexit
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm

# Until all is imported, by pytest_collection_finish: it would look through ever more, of which nothing goes.
gc.disable()

pytest_plugins = ["tests.surroundings", "tests.promises", "tests.order"]

Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).parent.parent

# moto reads these when it is imported, by whichever test is first.  1,300 old AMIs would cost half a second per test.
os.environ |= {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    "GIT_CONFIG_GLOBAL": os.devnull,  # a developer may ignore more files everywhere
}

# jsonschema, which SageMaker's SDK imports, builds 38 parsers with it, for more than a second; nobody here asks for
# formats.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# Small enough for a second, and without anything a test does not ask for.
SMALL = ("--model", "cnn", "--dataset", "synthetic", "--synthetic-images", "64", "--image-size", "8", "--epochs", "2",
         "--batch-size", "8", "--precision", "fp32", "--no-plot", "--threads", "1")  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lab", action="store_true", help="build the container with JupyterLab, too: a minute")
    parser.addoption("--write-golden", action="store_true", help="rewrite the golden files; then read the diff")


def pytest_collection_finish() -> None:
    """What is imported by now stays: garbage collection need not look through millions of objects again and again.

    Nor so often through what moto holds: that took a tenth of the tests' time.
    """
    gc.freeze()
    # Python frees it at its end: triton's library lists on stderr all of its own that is not.
    atexit.register(gc.unfreeze)
    gc.set_threshold(100_000, 50, 1000)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What test_crash_sweep.py counted and test_container.py measured, also when they ran on several workers."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    for size in [value for report in reports for name, value in report.user_properties if name == "image"]:
        terminalreporter.section("container")
        terminalreporter.write_line(size)
    rows = [row for report in reports for name, row in report.user_properties if name == "crash sweep"]
    if rows:
        terminalreporter.section("crash sweep")
        for command, kind, calls, cases, leaks in sorted(rows):
            terminalreporter.write_line(f"{command:<22}{kind:<18}{calls:>3} calls {cases:>4} cases {leaks:>3} leaks")
        terminalreporter.write_line(f"{sum(row[3] for row in rows)} cases, {sum(row[4] for row in rows)} leaks")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a long text with the file of that name in the golden/ folder beside the test."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--write-golden"):
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs; if that is right: pytest --write-golden, and read the diff"

    return compare


@pytest.fixture
def train(tmp_path: Path) -> Run:
    """Runs `python -m trainer`, or another `module`, with small settings; results go to tmp_path/run.

    So many `ranks` find each other without a launcher around them.
    """

    def run(  # type: ignore[no-untyped-def]
        *flags: object,
        ranks: int = 1,
        timeout_s: float = 120,
        env: dict[str, str] | None = None,
        module: str = "trainer",
    ):
        job = start_ranks(tmp_path, *flags, ranks=ranks, env=env, module=module)
        out, err = job.communicate(timeout_s)
        return subprocess.CompletedProcess(["trainer", *map(str, flags)], job.returncode, out, err)

    return run


@pytest.fixture
def start_trainer(tmp_path: Path) -> Run:
    """As `train`, but with the Python, and the torchrun for several `ranks`, that a user starts."""

    def run(*flags: object, ranks: int = 1, timeout_s: float = 120, env: dict[str, str] | None = None):  # type: ignore[no-untyped-def]
        return subprocess.run(
            trainer_command(tmp_path, *flags, ranks=ranks),
            capture_output=True, text=True, timeout=timeout_s, cwd=tmp_path, env=trainer_env(env),
        )  # fmt: skip

    return run


def start_ranks(
    folder: Path, *flags: object, ranks: int = 1, env: dict[str, str] | None = None, module: str = "trainer"
) -> warm.Job:
    """Starts what `train` runs."""
    places = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_PORT": str(warm.free_port())}
    envs = [places | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)] if ranks > 1 else [{}]
    return warm.Job(trainer_words(folder, *flags), folder, [trainer_env(place | (env or {})) for place in envs], module)


def trainer_words(folder: Path, *flags: object) -> list[str]:
    """The flags of a small training with results in folder/run."""
    return [*SMALL, "--run-dir", str(folder / "run"), "--cache-dir", str(folder / "cache"), *map(str, flags)]


def trainer_command(folder: Path, *flags: object, ranks: int = 1) -> list[str]:
    """The command line of such a training."""
    launcher = ["-m", "trainer.torchrun", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", "trainer", *trainer_words(folder, *flags)]


OF_LIBRARIES = ("TORCHINDUCTOR_CACHE_DIR", "WANDB_DISABLE_GIT", "ORT_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY")


def trainer_env(more: dict[str, str] | None = None) -> dict[str, str]:
    """This environment, with the code on the path, and without ranks that an outer launcher may have left.

    Nor with what a library, or the trainer for it, has set in this process: torch names its folder as soon as it is
    asked for it.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "SLURM_", "TORCHELASTIC_"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", *OF_LIBRARIES):
        clean.pop(name, None)
    return clean | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | (more or {})
