"""A whole rehearsal with secrets in AWS and in the user's own environment, and what it leaves on this machine."""

from tests.launch.core.test_secrets import PLANTED, WORDS, assert_nowhere
from tests.launch.rehearse.ec2.conftest import TRAINING, needs_namespaces
from tests.launch.rehearse.terminal import Start

# The value of every secret that its AWS holds.
WITH_SECRETS = f"""
import os, sys
from launch.ec2.__main__ import main
from launch.rehearse import account
account.REHEARSED = "{PLANTED}"
os.environ |= {{"WANDB_API_KEY": "{PLANTED}", "AWS_SECRET_ACCESS_KEY": "{PLANTED}", "HF_TOKEN": "{PLANTED}"}}
sys.exit(main(sys.argv[1:]))
"""


@needs_namespaces
def test_a_rehearsal_leaves_its_secrets_nowhere(start: Start) -> None:
    settings = [word if word != "4" else "1" for word in TRAINING]
    terminal = start(
        "--rehearse", "--job-name", "job", *settings, "--secret", ",".join(WORDS), code=("-c", WITH_SECRETS)
    )

    assert terminal.end() == 0, terminal.text

    files = [path for path in terminal.folder.rglob("*") if path.is_file()]
    assert {"receipt.html", "requests.jsonl", "node-0.log", "job.json"} <= {path.name for path in files}
    assert_nowhere(terminal.text, *(path.read_bytes() for path in files))
    # The nodes did ask for them.
    noted = (terminal.folder / "runs/job/requests.jsonl").read_text()
    assert "GetParameter" in noted
    assert "GetSecretValue" in noted
