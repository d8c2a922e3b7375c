"""One rank of a script, as a real process: what it finds, how it ends, and that nothing of it is left."""

import hashlib
import json
import os
import signal
import socket
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.conftest import trainer_env
from tests.processes import begun_with, left_of
from tests.warm import Job, free_port
from trainer.contract import Exit
from trainer.distributed.ranks import read_ranks
from trainer.process.run_folder import FolderLock
from trainer.script.__main__ import main
from trainer.script.child import FORCE_AFTER_S, Requests, Watch
from trainer.script.environment import own_port, run_of
from trainer.script.relay import Relay

Start = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts `python -m trainer.script FLAGS -- t.py ARGS`, of which `text` is the script."""

    def run(
        text: str, *flags: str, args: tuple[str, ...] = (), env: Mapping[str, str] | None = None, ranks: int = 1
    ) -> Job:
        (tmp_path / "t.py").write_text(text)
        words = ["--run-dir", str(tmp_path / "run"), *flags, "--", "t.py", *args]
        return Job(words, tmp_path, [rank_env(tmp_path, rank, ranks, env or {}) for rank in range(ranks)], SCRIPT)

    return run


SCRIPT = "trainer.script"


def rank_env(folder: Path, rank: int, ranks: int, more: Mapping[str, str]) -> dict[str, str]:
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return trainer_env({"TEST_JOB": str(folder), **(place if ranks > 1 else {}), **more})


def outcome(folder: Path) -> tuple[str, int, str]:
    found = json.loads((folder / "run" / "outcome.json").read_text())
    return found["state"], found["exit_code"], found["reason"]


def error_lines(job: Job, code: int) -> list[str]:
    """The lines that it ended with on standard error, where its own words begin."""
    err = job.communicate(timeout=30)[1]
    assert job.returncode == code, err
    lines = err.splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.startswith("error: ")) :]


def test_a_script_runs_as_it_is_and_what_it_prints_is_passed_on(start: Start, tmp_path: Path) -> None:
    text = "import sys\nsys.stdout.buffer.write(b'10%\\r20%\\n\\xff')\nsys.stderr.write(str(sys.argv))\n"
    job = start(text, args=("--lr", "0.1", "--", "a b"))
    stdout = job.stdout.buffer.read()  # type: ignore[attr-defined]

    assert stdout == b"10%\r20%\n\xff"
    assert job.communicate()[1].startswith("['t.py', '--lr', '0.1', '--', 'a b']")
    assert job.returncode == 0
    assert outcome(tmp_path) == ("done", 0, "")


def test_a_module_runs_with_what_lies_beside_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("import t, sys; print(t.name, sys.argv[1:])")
    (tmp_path / "t.py").write_text("name = 'beside'")
    job = Job(["--run-dir", "run", "--", "-m", "package.train", "-x"], tmp_path, [rank_env(tmp_path, 0, 1, {})], SCRIPT)

    assert job.communicate()[0] == "beside ['-x']\n"


# What stands in the user's folder, and what its tools/train.py prints.
OWN_WORLDS = [
    pytest.param({"trainer/__init__.py": "", "trainer/model.py": "name = 'own'"}, "trainer.model", id="a package"),
    pytest.param({"trainer.py": "name = 'own'"}, "trainer", id="a module"),
    pytest.param({"tools/trainer.py": "name = 'own'"}, "trainer", id="beside the script"),
]


@pytest.mark.parametrize(("files", "module"), OWN_WORLDS)
def test_a_script_imports_its_own_as_without_us(files: Mapping[str, str], module: str, tmp_path: Path) -> None:
    text = f"import sys; sys.path.append('.')\nfrom {module} import name; print(name)"
    for name, content in {**files, "tools/train.py": text}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    job = Job(["--run-dir", "run", "--", "tools/train.py"], tmp_path, [rank_env(tmp_path, 0, 1, {})], SCRIPT)

    assert (job.communicate()[0], job.returncode) == ("own\n", 0)


def test_a_script_without_a_trainer_of_its_own_finds_kit(start: Start, tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()  # of results

    assert start("from trainer import kit; print(kit.AGAIN)").communicate()[0] == "75\n"


PRINT_ENV = "import json, os; print(json.dumps(dict(os.environ)))"


def test_a_script_finds_the_variables_of_the_contract(start: Start, tmp_path: Path) -> None:
    job = start(
        PRINT_ENV, "--data-dir", "data", "--job", "mine", "--restarts", "2", env={"TORCHELASTIC_RESTART_COUNT": "1"}
    )
    found = json.loads(job.communicate()[0])

    assert found["DDP_RUN_DIR"] == str(tmp_path / "run")
    assert found["DDP_DATA_DIR"] == str(tmp_path / "data")
    assert (found["DDP_JOB"], found["DDP_RESTARTS"], found["DDP_STOP_WITHIN_S"]) == ("mine", "3", "30")
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"]) == ("0", "1", "0")
    assert found["PYTHONUNBUFFERED"] == "1"


FAILURES = [
    pytest.param("import nonsense_x", 1, "exit code 1: ModuleNotFoundError: No module named 'nonsense_x'", id="import"),
    pytest.param("import os; os._exit(200)", 200, "exit code 200", id="any code"),
]


@pytest.mark.parametrize(("text", "code", "why"), FAILURES)
def test_a_failure_is_one_sentence_with_the_last_lines_below(
    text: str, code: int, why: str, start: Start, tmp_path: Path
) -> None:
    sentence, *lines = error_lines(start(f"print('begun')\n{text}"), code)

    assert sentence == f"error: t.py ended with {why}"
    assert "  begun" in lines  # the two streams come apart
    assert all(line.startswith("  ") for line in lines)
    assert outcome(tmp_path) == ("failed", code, f"t.py ended with {why}")


def test_secrets_in_the_last_lines_are_hidden(start: Start) -> None:
    text = "import sys\nprint('login with ghp_' + 'a' * 36)\nsys.exit('bad token ghp_' + 'a' * 36)\n"

    lines = error_lines(start(text), 1)

    assert lines[0] == "error: t.py ended with exit code 1: bad token ***"
    assert not [line for line in lines if "aaaa" in line]


def test_a_script_that_is_silent_for_too_long_is_ended(start: Start) -> None:
    job = start("import time; print('begun', flush=True); time.sleep(60)", "--max-silence-s", "0.2")

    sentence, *_ = error_lines(job, 6)

    assert "--max-silence-s" in sentence


# ---- asked to leave


def test_metrics_go_to_the_run_folder_beyond_the_limit_of_output_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pace.json").write_text("of an earlier start")
    text = "import sys\nprint('x' * 2_000_000)\nprint('[METRIC] step=1 steps=4 loss=0.5')\nsys.exit('enough')"

    job = start(text, "--max-output-mb", "1")
    out, err = job.communicate()

    assert (len(out), job.returncode) == (10**6, 1)
    assert "--max-output-mb" in err
    assert "error: t.py ended with exit code 1: enough\n" in err
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == '{"step": 1, "steps": 4, "loss": 0.5}\n'
    assert json.loads((tmp_path / "run" / "pace.json").read_text())["done"] == 0.25


SAVES = """
import os, signal, time
def save(signum, frame):
    print("saving", signum, flush=True)
    os._exit({code})
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
time.sleep(60)
"""
KNOWS_NOTHING = "import time; print('begun', flush=True); time.sleep(60)"
ASKED = "t.py was asked to leave, and left"
DONE = "warning: t.py was asked to leave and ended with exit code 0"
AGAIN = "t.py was interrupted and asked to be restarted."


@pytest.mark.parametrize(
    ("text", "signum", "code", "err"),
    [
        pytest.param(SAVES.format(code=75), signal.SIGTERM, 75, AGAIN, id="saves"),
        pytest.param(SAVES.format(code=75), signal.SIGUSR1, 75, AGAIN, id="saves on Slurm's signal"),
        pytest.param(SAVES.format(code=0), signal.SIGTERM, 0, DONE, id="is done"),
        pytest.param(KNOWS_NOTHING, signal.SIGTERM, 75, ASKED, id="knows no signal"),
        pytest.param(KNOWS_NOTHING, signal.SIGINT, 130, "", id="knows no Ctrl-C"),
    ],
)
def test_a_script_is_asked_to_leave_by_sigterm(
    text: str, signum: signal.Signals, code: int, err: str, start: Start
) -> None:
    job = start(text)
    assert job.stdout.readline() == "begun\n"

    job.send_signal(signum)

    out, written = job.communicate()
    assert (out, job.returncode) == ("saving 15\n" if text != KNOWS_NOTHING else "", code)
    assert written.startswith(err)
    assert len(written.splitlines()) == bool(err)


OTHER_RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "mine"}


@pytest.mark.parametrize("env", [{}, OTHER_RANK], ids=["alone", "the second of two ranks"])
def test_a_second_run_is_kept_out_of_the_folder_and_touches_nothing(
    env: Mapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Requests, "listen", lambda *_: None)  # which is for processes of their own
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("open('begun', 'w').close(); raise SystemExit(3)")
    (tmp_path / "outcome.json").write_text("the first run's")
    first = FolderLock(tmp_path, "the first run")
    first.take()

    code = main(["--run-dir", str(tmp_path), "--", "t.py"], env)

    first.release()
    assert code == Exit.MACHINE
    assert f"{tmp_path} is in use by process {os.getpid()} on host " in capsys.readouterr().err
    assert (tmp_path / "outcome.json").read_text() == "the first run's"
    assert not (tmp_path / "begun").exists()


def test_the_ranks_of_one_run_know_each_other_also_once_they_are_started_again() -> None:
    place = {"MASTER_ADDR": "node-1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"}
    runs = [{}, {"MASTER_PORT": "29501"}, {"TORCHELASTIC_RUN_ID": "another"}, {"SLURM_JOB_ID": "7"}]
    envs = [{**OTHER_RANK, **place, **one} for one in runs]
    found = [run_of(read_ranks(env), env) for env in envs]

    assert len(set(found)) == len(runs)
    for env, own in zip(envs, found, strict=True):
        again = {**env, "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1", "PMIX_NAMESPACE": "8"}
        assert run_of(read_ranks(again), again) == own
    moved = envs[2] | {"MASTER_ADDR": "node-2", "MASTER_PORT": "29502"}  # as on EC2, after the loss of a node
    assert run_of(read_ranks(moved), moved) == found[2]


def test_a_second_ctrl_c_does_not_wait(start: Start) -> None:
    job = start("import signal, time\nsignal.signal(15, lambda *_: print('asked'))\nprint('begun')\ntime.sleep(60)\n")
    for line in ("begun\n", "asked\n"):
        assert job.stdout.readline() == line
        job.send_signal(signal.SIGINT)

    job.communicate()
    assert job.returncode == 130


class Process:
    """In the place of a subprocess.Popen."""

    def __init__(self) -> None:
        self.got: list[int] = []

    def send_signal(self, signum: int) -> None:
        self.got.append(signum)

    def kill(self) -> None:
        self.got.append(signal.SIGKILL)


def watched(process: Process, max_silence_s: float) -> Watch:
    requests = Requests()
    requests.process = process  # type: ignore[assignment]
    return Watch(requests, Relay(1, "", pytest.fail, last_output=time.monotonic()), max_silence_s)


def test_a_script_that_ignores_the_request_is_killed_before_torchrun_kills_its_parent() -> None:
    process = Process()
    watch = watched(process, max_silence_s=0)
    asked = 1000.0
    watch.requests.ask(signal.SIGUSR1, asked)

    watch.look(asked + FORCE_AFTER_S - 0.1)
    assert process.got == [signal.SIGTERM]
    watch.look(asked + FORCE_AFTER_S)
    assert process.got == [signal.SIGTERM, signal.SIGKILL]
    assert watch.requests.was_forced
    assert FORCE_AFTER_S < 30


# ---- nothing is left

LEAVES_CHILDREN = """
import subprocess, sys
for apart in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=apart)
print("begun", flush=True)
"""


def test_what_a_script_leaves_running_is_killed_at_its_end(start: Start, tmp_path: Path) -> None:
    job = start(LEAVES_CHILDREN)
    job.communicate(timeout=30)

    assert job.returncode == 0
    assert left_of(f"TEST_JOB={tmp_path}") == []


def test_a_script_and_its_children_end_with_a_parent_that_is_killed(start: Start, tmp_path: Path) -> None:
    text = LEAVES_CHILDREN.replace("(False, True)", "(False, False)")
    job = start(f"{text}\nimport time; time.sleep(100)")
    assert job.stdout.readline() == "begun\n"
    assert len(begun_with(f"TEST_JOB={tmp_path}", 4)) >= 4

    job.send_signal(signal.SIGKILL)

    assert left_of(f"TEST_JOB={tmp_path}") == []
    job.communicate()


# ---- what is wrong is a sentence


@pytest.mark.parametrize(
    ("flags", "sentence", "code"),
    [
        (("--cwd", "off"), "--cwd off", 2),
        (("--cwd", "sub"), "t.py is not in ", 2),
        (("--source", "off", "--digest", "0" * 64, "--work", "w"), "--source off", 2),
        (("--requirements", "none.txt", "--work", "w"), "--requirements none.txt", 2),
    ],
)
def test_a_wrong_setting_is_one_line(
    flags: tuple[str, ...], sentence: str, code: int, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()

    (line,) = error_lines(start("print(1)", *flags), code)

    assert line.startswith(f"error: {sentence}")
    assert outcome(tmp_path)[:2] == ("failed", code)


# ---- several ranks, as srun or mpirun start them


def test_the_rank_that_failed_is_named(start: Start, tmp_path: Path) -> None:
    text = "import os, time\nif os.environ['RANK'] == '1': import nonsense_x\ntime.sleep(60)\n"

    sentence, *_ = error_lines(start(text, ranks=2), 1)

    assert sentence == "error: rank 1: t.py ended with exit code 1: ModuleNotFoundError: No module named 'nonsense_x'"
    assert outcome(tmp_path)[2] == sentence.removeprefix("error: ")


ALIKE = """
import os, sys, time
open("begun-" + os.environ["RANK"], "w").close()
while not os.path.exists("begun-1") or (os.environ["RANK"] == "1" and not os.path.exists("run/outcome.json")):
    time.sleep(0.01)
sys.exit("no data")
"""


def test_where_all_ranks_of_a_node_fail_alike_one_says_so(start: Start, tmp_path: Path) -> None:
    jobs = [start(ALIKE, env=rank_env(tmp_path, rank, 2, {})) for rank in (0, 1)]  # neither ends the other

    errors = [job.communicate()[1].count("error: ") for job in jobs]

    assert (errors, [job.returncode for job in jobs]) == ([1, 0], [1, 1])


ONE_BY_ONE = """
import os, sys, time
while not os.path.exists("ready"): time.sleep(0.01)
sys.stderr.write("RuntimeError: gloo/transport/tcp/pair.cc:561 Connection closed by peer\\n"); sys.exit(1)
"""


def test_a_rank_that_lost_another_leaves_the_report_to_it(start: Start, tmp_path: Path) -> None:
    text = f"import os\nif os.environ['RANK'] == '1':\n    open('ready', 'w'); raise KeyError('mine')\n{ONE_BY_ONE}"

    job = start(text, ranks=2)
    err = job.communicate()[1]

    assert [line for line in err.splitlines() if line.startswith("error: ")] == [
        "error: rank 1: t.py ended with exit code 1: KeyError: 'mine'"
    ]
    assert outcome(tmp_path) == ("failed", 1, "rank 1: t.py ended with exit code 1: KeyError: 'mine'")


# ---- one process per node


def test_several_ranks_of_a_node_cannot_each_start_its_processes(start: Start) -> None:
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}

    (line,) = error_lines(start(PRINT_ENV, "--processes", "one", env=env), 2)

    assert line == "error: --processes one needs one process on each node, not 2; give --nproc-per-node 1."


def test_a_port_that_is_taken_is_a_sentence(start: Start) -> None:
    master = free_port()
    with socket.socket() as taken:
        taken.bind(("", own_port(master)))
        taken.listen()
        env = {"MASTER_PORT": str(master), "RANK": "0", "WORLD_SIZE": "1"}

        (line,) = error_lines(start(PRINT_ENV, "--processes", "one", env=env), 6)

    assert line.startswith(f"error: port {own_port(master)}, which the script's processes need, is in use")


WRITES = "import sys; open(sys.argv[1], 'w').write(' '.join(sys.argv))"


def test_arguments_that_name_a_nodes_folders_get_them(start: Start, tmp_path: Path) -> None:
    args = ("{run_dir}/out", "--data={data_dir}", "{other}", "{{x}}", "$DDP_RUN_DIR", "{run_dir")
    job = start(WRITES, "--data-dir", "photos", args=args)

    assert job.communicate() == ("", "")
    written = (tmp_path / "run" / "out").read_text().split()
    assert written[1:] == [
        f"{tmp_path}/run/out", f"--data={tmp_path}/photos", "{other}", "{{x}}", "$DDP_RUN_DIR", "{run_dir",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        ("open('model.pt', 'w')", True),  # beside the script
        ("import os; open(os.environ['DDP_RUN_DIR'] + '/train.log', 'w')", False),
    ],
)
def test_a_job_that_leaves_its_run_folder_empty_on_a_node_says_so(
    start: Start, tmp_path: Path, text: str, is_warned: bool
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.log").write_text("a launcher's")
    (tmp_path / "sent.py").write_text(text)
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "sent.py", "t.py")
    digest = hashlib.sha256((tmp_path / "source.tar.gz").read_bytes()).hexdigest()
    job = start(
        text, "--source", str(tmp_path / "source.tar.gz"), "--digest", digest, "--work", str(tmp_path / "unpacked")
    )
    err = job.communicate()[1]
    assert job.returncode == 0, err
    assert ("warning: t.py left nothing in its run folder, $DDP_RUN_DIR" in err) == is_warned
