"""A job array in a real Slurm: its tasks are jobs of their own, for Slurm as for who looks at them."""

import sys
from pathlib import Path

import pytest

from launch.core.job import Batch, Job, Member
from launch.core.training.classifier import Classifier
from launch.core.training.options import ScriptOptions, find_script
from launch.core.training.script import Script
from launch.slurm.batch import submit
from launch.slurm.folder import read_folder
from launch.slurm.options import SlurmOptions
from tests import needs
from tests.launch.slurm.cluster import Cluster
from tests.launch.slurm.user import User
from trainer import outcome
from trainer.config import TrainConfig

pytestmark = [needs.slurm(), pytest.mark.timeout(180)]

# a is signalled to save and comes back, b waits for a file and is then a script that runs, c waits until it is stopped.
TRAINS = """
words="$*" folder=${words##*--run-dir } name=$(basename "${folder%% *}")
trap 'exit 75' USR1 TERM
if [ $name = a ] && [ "${SLURM_RESTART_COUNT-0}" = 1 ]; then exit 0; fi
touch $name-ready
until [ $name = b ] && [ -e go ]; do sleep 0.1; done
exec {python} "$@"
"""


@pytest.mark.slow("an array's tasks in a real Slurm are throttled, requeued, found, joined and stopped one by one")
def test_tasks_of_an_array_are_jobs_of_their_own(
    user: User, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user.trains_by(TRAINS.replace("{python}", sys.executable))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", user.runtime.python)
    where = SlurmOptions(time="10", cpus_per_task=1, gpus_per_node=0)
    ours, theirs = Classifier(TrainConfig(device="cpu", model="cnn")), own_script(tmp_path / "mine", "--lr", "0.1")
    members = [
        Member(f"sweep-{name}", Path("out") / name, Job(theirs if name == "b" else ours, where), is_unseen=True)
        for name in "abc"
    ]
    together = Batch("sweep-all", Path("out"), 2, user.runtime.env, lambda line: None)

    assert submit(members, together) == ["sweep-a", "sweep-b", "sweep-c"]
    user.wait_for(lambda: all(Path(f"{name}-ready").exists() for name in "ab"))
    (array,) = {line.partition("_")[0] for line in queued(cluster)}
    cluster.call("scontrol", "update", f"job={array}", "comment=project 7")

    assert user.run("status") == 0
    shown = capsys.readouterr().out.splitlines()
    states = [line.split()[:3] for line in shown if "sweep-" in line]
    assert sorted(states) == [
        ["sweep-a", f"{array}_0", "running"], ["sweep-b", f"{array}_1", "running"],
        ["sweep-c", f"{array}_2", "pending"],
    ]  # fmt: skip
    assert submit(members, together) == ["sweep-a", "sweep-b", "sweep-c"]
    assert len(queued(cluster)) == 3

    # Slurm's own signal, as ahead of a time limit; then c has room, and is stopped alone.
    cluster.call("scancel", "--batch", "--signal=USR1", f"{array}_0")
    user.wait_for(lambda: Path("c-ready").exists())
    assert user.run("stop", "sweep-c") == 0
    assert user.run("attach", "out/a", "--outcome", "ended") == 0
    Path("go").touch()
    assert [user.run("attach", str(tmp_path / "out" / name)) for name in "bc"] == [0, 130]

    ends = {name: [(start["job"], start["then"]) for start in read_folder(tmp_path / "out" / name).starts]
            for name in "abc"}  # fmt: skip
    assert ends == {
        "a": [(f"{array}_0", "requeue"), (f"{array}_0", "done")], "b": [(f"{array}_1", "done")],
        "c": [(f"{array}_2", "stopped")],
    }  # fmt: skip
    assert (tmp_path / "out/b/metrics.jsonl").read_text() == '{"step": 1, "lr": 0.1}\n'
    ended = outcome.read(Path("ended"))
    assert ended
    assert (ended.state, ended.job) == ("done", "sweep-a")


def own_script(folder: Path, *arguments: str) -> Script:
    """A script of the user's own, which is sent."""
    folder.mkdir()
    (folder / "train.py").write_text("import sys\nprint('[METRIC] step=1 lr=' + sys.argv[2])\n")
    options = ScriptOptions.model_validate({"script": folder / "train.py"})
    return find_script(options, arguments, {}, folder, is_sent=True)


def queued(cluster: Cluster) -> list[str]:
    return cluster.call("squeue", "-h", "--array", "-o", "%i").split()
