"""Jobs in a real Slurm.  Where the training does not matter, ranks are a few lines of shell."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from launch.slurm.script import render
from tests import needs
from tests.launch.slurm.cluster import Cluster
from tests.launch.slurm.jobs import EVERY_KIND, resolved
from tests.launch.slurm.user import User

# Slurm's own waits and a busy machine: a requeued job waits for seconds.
pytestmark = [needs.slurm(), pytest.mark.timeout(180)]

WAIT_FOR_SIGNAL = """
trap 'echo saved $SLURM_PROCID; exit 75' USR1 TERM
echo ready $SLURM_PROCID
until [ $SECONDS -gt 300 ]; do sleep 0.1; done # which the signal may end first
"""
Capture = pytest.CaptureFixture[str]


def waiting(user: User) -> None:
    """Submits a job of two ranks that wait for a signal, and returns when they do."""
    user.trains_by(WAIT_FOR_SIGNAL)
    assert user.submit() == 0
    user.wait_for(lambda: user.log.count("ready") == 2)


def job_ids(cluster: Cluster) -> list[str]:
    return cluster.call("squeue", "-h", "-o", "%i").split()


def test_every_rank_runs_and_finds_its_place(user: User, capsys: Capture) -> None:
    """Also in a folder with blanks, quotes and percents."""
    folder = user.runtime.cwd / "50% 'of' \"it\" #1"
    folder.mkdir()
    user.runtime = replace(user.runtime, cwd=folder)
    user.trains_by(
        'echo "rank $SLURM_PROCID of $SLURM_NTASKS at $MASTER_ADDR:$((MASTER_PORT - 15000 - SLURM_JOB_ID % 17000))"'
    )

    assert user.submit("--nproc-per-node", "2", "--wait") == 0

    shown = capsys.readouterr().out
    assert sorted(line for line in shown.splitlines() if line.startswith("rank ")) == [
        f"rank {rank} of 4 at 127.0.0.1:0" for rank in range(4)
    ]
    assert user.ends == [(0, "done")]
    assert user.starts[0]["nodes"] == "n[0-1]"
    assert (user.outcome.state, user.outcome.exit_code, user.outcome.job) == ("done", 0, "job")


def test_the_failure_of_one_rank_is_the_jobs_exit_code_and_sentence(user: User, capsys: Capture) -> None:
    user.trains_by(r"""
if [ "$SLURM_PROCID" = 1 ]; then echo 'error: no folder "no\where"; point --data-dir at it.' >&2; exit 3; fi
exit 6  # as a rank that lost another one
""")
    sentence = r'no folder "no\where"; point --data-dir at it.'

    assert user.submit("--wait") == 3

    assert capsys.readouterr().err == f"error: {sentence}\n"
    assert user.ends == [(3, "failed")]
    assert (user.outcome.state, user.outcome.exit_code, user.outcome.reason) == ("failed", 3, sentence)
    assert user.run("attach", "job") == 3


def test_a_job_that_is_cancelled_does_not_come_back(user: User, cluster: Cluster) -> None:
    waiting(user)

    cluster.call("scancel", "--name=job")

    assert user.run("attach", "job") == 130
    assert job_ids(cluster) == []


def test_a_job_that_is_stopped_saves_and_does_not_come_back(user: User, cluster: Cluster, capsys: Capture) -> None:
    waiting(user)

    assert user.run("stop") == 0  # the only one

    assert job_ids(cluster) == []
    assert user.log.count("saved") == 2
    assert user.ends == [(75, "stopped")]
    assert (user.outcome.state, user.outcome.exit_code) == ("stopped", 130)
    assert user.run("stop", "job") == 0
    capsys.readouterr()
    assert user.run("status", "job") == 0
    assert "job job ended: it was stopped after it had saved" in capsys.readouterr().out


@pytest.mark.parametrize(
    "launcher", ["srun", pytest.param("torchrun", marks=pytest.mark.slow("a site's own habits do torchrun no harm"))]
)
def test_a_sites_own_habits_do_no_harm(launcher: str, user: User, cluster: Cluster, capsys: Capture) -> None:
    """It exports nothing into jobs, lets each task see one GPU of its own, and writes its own comments."""
    site = {"SBATCH_EXPORT": "NONE", "SBATCH_GPU_BIND": "single:1", "SLURM_GPU_BIND": "single:1"}
    user.runtime = replace(user.runtime, env={**user.runtime.env, **site})
    user.trains_by(r"""
echo "rank $SLURM_PROCID $MASTER_ADDR sees $CUDA_VISIBLE_DEVICES of $DDP_NODE_GPUS, ${PATH:+finds programs}"
until [ -e go ]; do sleep 0.05; done
""")
    job = ("--nodes", "2", "--gpus-per-node", "2", "--time", "10", "--cpus-per-task", "1", "--job-name", "job",
           "--health-check", "--launcher", launcher, "--detach")  # fmt: skip
    tasks = 4 if launcher == "srun" else 2

    assert user.run(*job) == 0
    user.wait_for(lambda: user.log.count("sees") == tasks)
    sees = "0,1" if (cluster.folder / "gpu0").is_char_device() else ""
    assert user.log.count(f" 127.0.0.1 sees {sees} of 2, finds programs") == tasks
    cluster.call("scontrol", "update", f"job={job_ids(cluster)[0]}", "comment=project 7")

    capsys.readouterr()
    assert user.run("status", "job") == 0
    assert "running" in capsys.readouterr().out
    assert user.run(*job) == 0
    assert "is in the queue already" in capsys.readouterr().out
    (user.runtime.cwd / "go").touch()
    assert user.run("attach", "job") == 0
    assert user.ends == [(0, "done")]


@pytest.mark.slow("a job whose nodes a real Slurm takes away is requeued and ends well")
def test_a_job_that_slurm_takes_the_nodes_from_is_requeued(user: User, cluster: Cluster) -> None:
    user.trains_by('if [ "${SLURM_RESTART_COUNT-0}" = 1 ]; then exit 0; fi' + WAIT_FOR_SIGNAL)
    assert user.submit() == 0
    user.wait_for(lambda: user.log.count("ready") == 2)

    cluster.call("scontrol", "requeue", *job_ids(cluster))

    assert user.run("attach", "job") == 0
    assert [then for _, then in user.ends] == ["slurm", "done"]
    assert user.outcome.state == "done"


def test_the_same_command_again_joins_the_job_in_the_queue(user: User, cluster: Cluster, capsys: Capture) -> None:
    assert user.submit("--sbatch=--hold") == 0
    capsys.readouterr()

    assert user.submit("--sbatch=--hold") == 0
    shown = capsys.readouterr().out
    assert "is in the queue already" in shown
    assert user.submit("--sbatch=--hold", "--epochs", "9") == 2
    assert "with other settings" in capsys.readouterr().err
    (job,) = job_ids(cluster)
    assert user.run("status") == 0
    assert f"`scontrol release {job}`" in capsys.readouterr().out
    for words in re.findall("python -m launch.slurm (status .*|stop .*)", shown):  # which can be pasted
        assert user.run(*words.split()) == 0
        assert words.startswith("stop") or f"`scontrol release {job}`" in capsys.readouterr().out
    assert job_ids(cluster) == []


def test_a_job_that_is_done_is_not_run_again(user: User, capsys: Capture) -> None:
    user.trains_by("exit 0")
    assert user.submit("--wait") == 0

    assert user.submit("--wait") == 0

    assert "job job is done" in capsys.readouterr().out.splitlines()[-1]
    assert len(user.starts) == 1


def test_jobs_of_others_are_neither_shown_nor_stopped(user: User, cluster: Cluster, capsys: Capture) -> None:
    flags = ("--job-name=job", "--comment=of\ntwo lines", "--output=/dev/null", "--wrap=sleep 60")
    other = cluster.call("sbatch", "--parsable", *flags).strip()

    assert user.run("status") == 0
    assert "you have no jobs" in capsys.readouterr().out
    assert user.run("stop", other) == 2
    assert f"job {other} is not one of this toolkit's" in capsys.readouterr().err
    assert user.run("stop", "job") == 2
    assert job_ids(cluster) == [other]


@pytest.mark.slow("a real Slurm's signal before the time limit reaches every rank")
def test_slurms_signal_before_the_time_limit_reaches_every_rank(user: User) -> None:
    user.trains_by(WAIT_FOR_SIGNAL)

    # Slurm looks every 30 s for jobs that end within the next 30: here after 5 s at the earliest, when both ranks wait.
    assert user.submit("--wait", "--time", "1", "--save-before-s", "25", "--max-restarts", "0") == 75

    assert user.log.count("saved") == 2
    assert user.ends == [(75, "spent")]
    assert user.outcome.state == "interrupted"


def test_a_setup_that_fails_ends_the_job_before_a_rank_starts(user: User, capsys: Capture) -> None:
    user.trains_by("exit 0")

    assert user.submit("--wait", "--setup", "echo loading 'a b'; exit 9") == 2

    assert "loading a b" in user.log
    assert capsys.readouterr().err == "error: --setup failed; its own output is above\n"
    assert (user.outcome.state, user.outcome.exit_code) == ("failed", 2)


def test_a_job_in_another_folder_is_found_by_its_name(user: User, capsys: Capture) -> None:
    user.trains_by("exit 0")
    assert user.submit("--wait", "--run-dir", "runs/sweep/a_1") == 0

    for job in ("job", "runs/sweep/a_1"):
        assert user.run("status", job) == 0
        assert "job job ended: done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--partition", "mian"], "did you mean 'main'?"),
        (["--time", "10:00:00"], "--time 10:00:00"),
        (["--nodes", "3"], "--nodes 3"),
        (["--cpus-per-task", "9"], "9 CPUs"),
        (["--constraint", "slow"], "--constraint slow"),
        (["--nodelist", "n7"], "--nodelist n7"),
        (["--mem", "100G"], "--mem 100G"),
        (["--sbatch=--gres=gpu:9"], "does not have 2 nodes"),
        (["--device", "auto", "--gpus-per-node", "3"], "at most 2"),
        (["--device", "auto", "--gpus-per-node", "1", "--gpu-type", "h100"], "a100"),
    ],
)
def test_a_job_that_slurm_would_refuse_is_refused_before_anything_is_written(
    flags: list[str], words: str, user: User, capsys: Capture
) -> None:
    assert user.submit(*flags) == 2

    assert words in capsys.readouterr().err
    assert not user.folder.exists()


def test_a_dry_run_says_when_slurm_expects_to_start_the_job(user: User, capsys: Capture) -> None:
    gpus = ("--time", "10", "--cpus-per-task", "1", "--gpus-per-node", "2", "--gpu-type", "a100")

    assert user.run(*gpus, "--dry-run") == 0

    assert "expected by Slurm at 20" in capsys.readouterr().out


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_slurm_takes_every_kind_of_script(kind: str, cluster: Cluster, tmp_path: Path) -> None:
    script = render(resolved(kind, tmp_path))

    ended = subprocess.run(["sbatch", "--test-only"], input=script, env=cluster.env, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr


def test_a_controller_that_does_not_answer_is_named(user: User, tmp_path: Path, capsys: Capture) -> None:
    conf = Path(user.runtime.env["SLURM_CONF"]).read_text()
    lines = [line for line in conf.splitlines() if "SlurmctldPort" not in line]
    unreachable = tmp_path / "slurm.conf"
    unreachable.write_text("\n".join([*lines, "SlurmctldPort=1", "MessageTimeout=2"]))
    user.runtime = replace(user.runtime, env={**user.runtime.env, "SLURM_CONF": str(unreachable)})

    assert user.run("status") == 6

    assert capsys.readouterr().err.startswith("error: Slurm's controller does not answer squeue")
