"""How tests start rehearsals."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.launch.privilege.rehearsed import ungranted
from tests.launch.rehearse.terminal import Start, Terminal

# Signals that must end a rehearsal, although whatever started the tests may ignore them.
DEFAULT_SIGNALS = ["env", "--default-signal=HUP,INT,TERM"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts `python -m MODULE words...` in a folder of its own; code: what Python runs instead of MODULE."""
    started: list[Terminal] = []

    def begin(*words: str, module: str = "launch.ec2", code: tuple[str, ...] = ()) -> Terminal:
        folder, mark = tmp_path_factory.mktemp("rehearsal"), f"TEST_MARK={uuid.uuid4().hex}"
        (folder / "tmp").mkdir()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
        process = subprocess.Popen(
            [*DEFAULT_SIGNALS, sys.executable, *(code or ("-m", module)), *words],
            cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**clean, **dict([mark.split("=")]), "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        )  # fmt: skip
        started.append(Terminal(folder, process, mark))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.process.kill()
        terminal.process.communicate()
        for requests in terminal.folder.glob("runs/*/requests.jsonl"):
            assert ungranted(requests) == set()
