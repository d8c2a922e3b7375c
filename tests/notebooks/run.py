"""Runs the notebooks without a browser, and saves them with their output.

    python -m tests.notebooks.run [sagemaker] [scaling_analysis] [single_gpu]

sagemaker.ipynb runs against the embedded SageMaker of tests/launch/sagemaker/agent.py, with two ranks
on the CPU.
"""

import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import nbformat
from nbclient import NotebookClient

from tests.conftest import ROOT

if TYPE_CHECKING:
    from tests.launch.sagemaker.agent import Agent

Notebook = nbformat.NotebookNode

FOLDER = ROOT / "notebooks"
NAMES = ("sagemaker", "scaling_analysis", "single_gpu")
BESIDE = ("scaling_runs",)  # folders beside the notebooks that they read
TIMEOUT_S = 600  # of a cell

NOBODYS_AWS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def read(name: str) -> Notebook:
    """The committed notebook."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def with_parameters(notebook: Notebook, **values: Any) -> Notebook:
    """`notebook` with other values for parameters that it has."""
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    for name, value in values.items():
        cell.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        assert count == 1, f"{name} is no parameter"
    return notebook


def execute(notebook: Notebook, folder: Path) -> Notebook:
    """Runs all cells in `folder`, where their files stay.  Raises CellExecutionError."""
    ours = {
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(folder / ".ipython"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # it warns of Python's own frozen modules
    }
    for name in BESIDE:
        (folder / name).symlink_to(FOLDER / name)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources=resources,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],  # it warns that other users of this machine could listen
    )
    client.execute(env={**os.environ, **ours})
    notebook.metadata["language_info"] = {"name": "python"}  # without this machine's version
    return notebook


@contextmanager
def nobodys_aws() -> Iterator[None]:
    """Replaces the user's AWS settings inside the block."""
    with mock.patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update(NOBODYS_AWS)
        yield


@contextmanager
def account_here() -> Iterator[None]:
    """Embeds an AWS account in this process inside the block; it trains nothing."""
    from tests.launch.sagemaker.account import SageMakerAccount

    with nobodys_aws(), SageMakerAccount.opened():
        yield


@contextmanager
def aws_here(folder: Path, ranks: int = 2) -> Iterator["Agent"]:
    """Embeds AWS on this machine inside the block, for this process and those that it starts.  ranks: of a machine."""
    from tests.launch.sagemaker.agent import playing

    with nobodys_aws(), playing(folder, ranks=ranks) as agent:
        os.environ["AWS_ENDPOINT_URL"] = agent.url
        yield agent


STAGES: Mapping[str, Callable[[Path], AbstractContextManager[Any]]] = {
    "sagemaker": aws_here,
    "scaling_analysis": nullcontext,
    "single_gpu": nullcontext,
}


def shown(cell: Notebook) -> str:
    """The text that a cell shows."""
    return "\n".join(text for output in cell.get("outputs", ()) for text in _texts(output))


def _texts(output: Notebook) -> Iterator[str]:
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield "\n".join(output.traceback)
    else:
        yield from (text for kind, text in output.data.items() if kind.startswith("text/"))


def faults(notebook: Notebook) -> list[str]:
    """Reasons not to commit the output: errors, warnings, and traces of this machine."""
    found = []
    host = re.escape(socket.gethostname())
    machine = re.compile(rf"(?<![\w./-])/(work|root|tmp|home|Users|usr|opt|var)\b|\b{host}\b")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(cells, 1):
        if cell.execution_count != number:
            found.append(f"cell {number} has execution count {cell.execution_count}")
        kinds = {output.get("name", output.output_type) for output in cell.outputs}
        found += [f"cell {number} shows {kind}" for kind in sorted(kinds & {"stderr", "error"})]
        text = shown(cell)
        found += [f"cell {number} shows {what.group()}" for what in machine.finditer(text)]
        found += [f"cell {number} shows {control!r}" for control in ("\x1b", "\r", "\b") if control in text]
    return found


def main(names: list[str]) -> int:
    """Executes and saves; returns an exit code."""
    for name in names or NAMES:
        with tempfile.TemporaryDirectory() as folder, STAGES[name](Path(folder, "sagemaker")):
            work = Path(folder, "work")
            work.mkdir()
            notebook = execute(read(name), work)
        if problems := faults(notebook):
            print(f"{name}.ipynb is not saved:", *problems, sep="\n  ", file=sys.stderr)
            return 1
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        print(f"{name}.ipynb is run and saved")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
