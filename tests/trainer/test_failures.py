"""What goes wrong ends with one clear sentence and the right exit code, never with a traceback."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import Run, start_ranks, trainer_env, trainer_words
from tests.warm import Job, free_port
from trainer import __main__ as trainer_main
from trainer.contract import OUTCOME, STOPPED
from trainer.errors import MachineError
from trainer.metrics.log import read_records
from trainer.outcome import read as read_outcome


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Asserts the exit code and that standard error is exactly one `error:` sentence with these words."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model", "resnt18"), ("'resnt18'", "did you mean 'resnet18'?")),
        (("--device", "cuda"), ("no usable GPU", "--device cpu")),
        (("--init-from", "nowhere.pt"), ("--init-from", "nowhere.pt", "model.pt")),
    ],
)
def test_wrong_settings_are_refused_with_2(flags: tuple[str, ...], words: tuple[str, ...], train: Run) -> None:
    refused(train(*flags), 2, *words)


def test_a_batch_larger_than_the_data_set_is_refused(train: Run) -> None:
    refused(train("--batch-size", "65"), 2, "64 images", "global batch of 65", "lower --batch-size")


def test_a_missing_folder_is_reported_once_by_two_ranks(train: Run, tmp_path: Path) -> None:
    done = train("--dataset", "imagefolder", "--data-dir", tmp_path / "nowhere", ranks=2)
    refused(done, 3, str(tmp_path / "nowhere"))
    assert [path.name for path in (tmp_path / "run").iterdir()] == [OUTCOME]
    outcome = read_outcome(tmp_path / "run")
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("failed", 3)
    assert f"error: {outcome.reason}\n" == done.stderr


def test_a_refusal_is_reported_even_if_rank_0_is_slow(train: Run) -> None:
    """All ranks are ended when the first has left, as under torchrun; rank 0 may still be importing torch."""
    done = train("--strategy", "single", ranks=2, module="tests.trainer.odd_rank", env={"LATE_S": "1"})
    refused(done, 2, "would train 2 models")


def test_a_loss_that_explodes_stops_the_run_and_keeps_the_last_checkpoint(train: Run, tmp_path: Path) -> None:
    good = train("--epochs", "1", "--schedule", "constant", "--lr", "0.01")
    assert good.returncode == 0, good.stderr
    done = train("--epochs", "3", "--schedule", "constant", "--lr", "1e30")
    refused(done, 5, "the loss is not finite from update", "of epoch 2 on", "lower --lr", "--clip-norm")
    assert [p.name for p in (tmp_path / "run" / "checkpoints").glob("epoch*.pt")] == ["epoch-0001-step-000008.pt"]
    assert [record["epoch"] for record in read_records(tmp_path / "run" / "metrics.jsonl")] == [1]


def test_a_full_disk_is_reported_and_no_rank_claims_to_have_saved(train: Run) -> None:
    """Two ranks are stopped, and rank 0 cannot write."""
    done = train(ranks=2, env={"LARGEST_FILE": "200000", "STOP_AT": "2"}, module="tests.trainer.odd_rank")
    refused(done, 6, "cannot write checkpoint", "MiB free")
    assert "saved in" not in done.stderr


def first_of_two(port: int) -> dict[str, str]:
    return {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": str(port)}


def test_a_port_in_use_is_named(train: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(train("--timeout-s", "5", env=first_of_two(port)), 6, f"port {port} is in use", "--master-port")


def test_ranks_that_never_come_are_counted(train: Run) -> None:
    refused(train("--timeout-s", "1", env=first_of_two(free_port())), 6, "fewer than 2 ranks", "within 1 s")


def world(folder: Path, size: int, hang: str = "", timeout_s: int = 8) -> list[Job]:
    """So many ranks, each a job of its own: the end of one does not end the others, as it would under torchrun.

    hang: RANK:WHERE, as tests/bench/hung_rank.py has it.
    """
    port = str(free_port())
    return [
        Job(
            trainer_words(folder, "--epochs", "500", "--timeout-s", timeout_s),
            folder,
            [trainer_env({"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "HANG": hang,
                          "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})],
            "tests.bench.hung_rank" if hang else "trainer",
        )
        for rank in range(size)
    ]  # fmt: skip


def errors_of(ranks: list[Job], stopped: int | None = None) -> list[str]:
    """The error lines of all ranks, once all have ended; the one that is `stopped` ends once it may go on."""
    texts = [rank.communicate(timeout=60)[1] for number, rank in enumerate(ranks) if number != stopped]
    if stopped is not None:
        ranks[stopped].send_signal(signal.SIGCONT)
        ranks[stopped].communicate(timeout=30)
    text = "".join(texts)
    assert "Exception raised from" not in text, text  # pages of C++
    return [line for line in text.splitlines() if line.startswith("error: ")]


@pytest.mark.slow("a rank that hangs is named, also where it is the store's host, and nobody stays")
@pytest.mark.parametrize("hang", ["0:SIGSTOP", "2:collective"])
def test_a_rank_that_hangs_is_named_once_and_all_end(hang: str, tmp_path: Path) -> None:
    """No launcher ends anybody, and the store lives with rank 0, as under srun."""
    who, _, where = hang.partition(":")
    ranks = world(tmp_path, 3, hang, timeout_s=3)
    errors = errors_of(ranks, stopped=int(who) if where == "SIGSTOP" else None)
    assert len(errors) == 1
    assert errors[0].startswith(f"error: rank {who} of 3 died or hung ")
    assert [rank.returncode for rank in ranks] == [6, 6, 6]


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    head, other = world(tmp_path, 2, timeout_s=4)
    next(line for line in head.stdout if line.startswith("epoch 1/"))
    other.send_signal(signal.SIGKILL)
    _, err = head.communicate(timeout=60)
    other.communicate()
    assert head.returncode == 6
    assert "error: rank 1 of 2 died or hung " in err
    assert "Traceback" not in err


def test_an_error_of_one_rank_is_reported_by_it_alone_and_all_end_with_its_code(tmp_path: Path) -> None:
    ranks = world(tmp_path, 2, "0:error", timeout_s=20)
    assert errors_of(ranks) == ["error: 0.jpg cannot be read."]
    assert [rank.returncode for rank in ranks] == [3, 3]


def test_ctrl_c_saves_and_leaves(tmp_path: Path) -> None:
    job = start_ranks(tmp_path, "--epochs", "1000")
    next(line for line in job.stdout if line.startswith("epoch 1/"))
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=60)
    assert job.returncode == 75
    assert "stopped on request in epoch" in err
    outcome = read_outcome(tmp_path / "run")
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("interrupted", 75)


def done_and_then(signum: signal.Signals, words: list[str]) -> None:
    """A training that is done, and gets a signal before its process has ended."""
    import trainer.run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.run, "run", lambda *_: None)
        code = trainer_main.main(words, {})
    os.kill(os.getpid(), signum)
    trainer_main.leave(code)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_rank_that_is_done_ends_with_0_whatever_signal_comes(signum: signal.Signals, tmp_path: Path) -> None:
    process = warm.start(done_and_then, signum, trainer_words(tmp_path))
    process.join(60)
    assert process.exitcode == 0


def test_ctrl_c_while_an_error_is_reported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two: the first had the training stop."""

    def fail(*_: object) -> int:
        raise MachineError("the disk is gone.")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer_main, "_run", fail)
    monkeypatch.setattr(trainer_main, "report_end", interrupted)
    assert trainer_main.main(["--model", "cnn"], {}) == STOPPED
