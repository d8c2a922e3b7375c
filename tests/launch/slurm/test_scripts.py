"""Scripts of the user's own in a real Slurm."""

import json
from pathlib import Path

import pytest

from tests import needs
from tests.foreign import FOREIGN, missing_in
from tests.launch.slurm.user import User

pytestmark = needs.slurm()

SCRIPT = (
    FOREIGN
    + """\
import os, socket, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
if dist.get_rank() == 0:
    print(f"[METRIC] step=1 steps=2 total={total.item()}")
print("rank", dist.get_rank(), "of", dist.get_world_size(), sys.argv[1:], os.environ["DDP_JOB"])
with socket.socket() as probe:
    probe.bind(("", 0))
    port = torch.tensor(probe.getsockname()[1])
dist.broadcast(port, 0)
dist.barrier()
dist.destroy_process_group()
if "foreign" in sys.argv:
    # The store still has the addresses of the group above, so the next one gets a store of its own.
    os.environ |= {"MASTER_PORT": str(port.item()), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    foreign()
"""
)


@pytest.mark.slow("a script of the user's own runs on the nodes of a real Slurm, as it was when it was submitted")
@pytest.mark.timeout(240)
def test_a_script_runs_on_the_nodes_of_a_job(
    user: User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = user.runtime.cwd
    (here / "mine").mkdir()
    (here / "mine/train.py").write_text(SCRIPT)
    monkeypatch.chdir(here)
    words = ("--job-name", "job", "--nodes", "2", "--gpus-per-node", "0", "--launcher", "torchrun", "--time", "10",
             "--cpus-per-task", "1", "--detach", "--script", "mine/train.py", "--")  # fmt: skip

    assert user.run(*words, "--lr", "0.1", "foreign") == 0
    (here / "mine/train.py").write_text("raise SystemExit('edited while the job waited')")  # which is a copy by then
    assert user.run("attach", "job") == 0, user.log

    shown = capsys.readouterr().out
    for rank in (0, 1):
        assert f"rank {rank} of 2 {['--lr', '0.1', 'foreign']} job" in shown
    assert missing_in(shown) == []  # trainings that nobody here wrote
    assert [json.loads(line) for line in (user.folder / "metrics.jsonl").read_text().splitlines()] == [
        {"step": 1, "steps": 2, "total": 3.0}
    ]
    assert user.outcome.state == "done"
    assert user.run("status", "job") == 0
    assert "  progress  50% done\n" in capsys.readouterr().out
