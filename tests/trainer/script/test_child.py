"""The script's process at the moments that no test of whole runs meets."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import trainer_env

# By itself, as child.run() ends all children of its process.
ASKED_AS_IT_ENDS = """
import os, signal, sys, time
from pathlib import Path
from trainer.script import child
from trainer.script.relay import Relay

requests, wait = child.Requests(), os.waitid

def wait_and_be_asked(*words):
    wait(*words)
    REQUEST
    return wait(*words)

os.waitid = wait_and_be_asked
relay = Relay(1000, "", print)
print(child.run([sys.executable, "-c", "raise SystemExit(3)"], Path.cwd(), os.environ, relay, requests, 0.0).code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Popen itself waits")
@pytest.mark.parametrize("request_", ["requests.ask(signal.SIGTERM, time.monotonic())", "requests.force()"])
def test_a_request_as_the_script_ends_leaves_its_exit_code_as_it_is(request_: str, tmp_path: Path) -> None:
    """Popen's own methods take the code of a process that has ended; then run() waited for one that was not there."""
    code = ASKED_AS_IT_ENDS.replace("REQUEST", request_)
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=trainer_env(), capture_output=True, text=True, check=False
    )

    assert (said.stdout, said.stderr) == ("3\n", "")
