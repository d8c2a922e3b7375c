"""Images decoded by processes: what threads make of them, to the last bit, and what becomes of the processes."""

import errno
import gc
import os
import pickle
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch

from tests import needs
from tests.conftest import ROOT
from tests.trainer.datasets.test_streaming import together
from trainer.config import Batches
from trainer.datasets import imagefolder, streaming
from trainer.datasets.base import UNREADABLE, Batch, Request
from trainer.datasets.order import Crops, Order, positions
from trainer.datasets.processes import Decoded, Task, _Decoder, _problem
from trainer.datasets.source import Piece
from trainer.errors import DataError, MachineError

ORDER = Order(12, seed=0, epoch=1)
WHERE = positions(Batches(4, 1, 1), 0, 1, 0, 3)
Ask = Callable[..., Request]

pytestmark = pytest.mark.timeout(120)  # the first of them starts the server, which imports torch


@pytest.fixture
def asked(ask: Ask, make_tree: Callable[..., Path]) -> Request:
    return ask(make_tree(), image_size=8, workers=2, by_processes=True)


def trained(request: Request) -> Batch:
    return together(list(imagefolder.load_large(request).train.train_batches(ORDER, WHERE)))


def words_of(asked: Request) -> tuple[str, ...]:
    return ("--dataset", "imagenet", "--data-dir", str(asked.data_dir), "--model", "cnn", "--image-size", "8",
            "--batch-size", "4", "--workers", "2")  # fmt: skip


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def decoders_of(pid: int) -> list[int]:
    """The processes that its fork servers have forked."""
    servers = [child for child in children(pid) if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return [decoder for server in servers for decoder in children(server)]


@pytest.mark.parametrize("chunk", [64, 3])
def test_processes_make_what_threads_make(asked: Request, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "TASK", chunk)
    state = torch.get_rng_state()

    threads, processes = (trained(replace(asked, by_processes=kind)) for kind in (False, True))

    assert torch.equal(threads.images, processes.images)
    assert torch.equal(threads.labels, processes.labels)
    assert torch.equal(torch.get_rng_state(), state), "a resumed run would go on with other random numbers"


def test_an_unreadable_image_is_named_or_weighs_nothing(asked: Request) -> None:
    bad = asked.data_dir / "train" / "cat" / "2.jpg"
    bad.write_bytes(b"no image")

    with pytest.raises(DataError, match=r"1 image could not be read \(0 allowed\): train/cat/2.jpg \(not an image\)"):
        trained(asked)
    batch = trained(replace(asked, max_bad_images=1))

    place = ORDER.permutation.tolist().index(2)
    first = 4 * (place // 4)
    copied = next(row for row in range(first, first + 4) if row != place)
    assert batch.labels[place] == UNREADABLE
    assert torch.equal(batch.images[place], batch.images[copied])


def test_a_decoder_that_is_killed_ends_the_training_with_a_sentence(asked: Request) -> None:
    before = set(decoders_of(os.getpid()))
    with closing(imagefolder.load_large(asked).train.train_batches(ORDER, WHERE)) as batches:
        next(batches)
        for decoder in set(decoders_of(os.getpid())) - before:
            os.kill(decoder, signal.SIGKILL)
        with pytest.raises(MachineError, match=r"too little memory\. Lower --workers, and start again to resume"):
            list(batches)


def test_what_asks_the_training_to_save_does_not_end_its_decoders(asked: Request) -> None:
    with closing(imagefolder.load_large(asked).train.train_batches(ORDER, WHERE)) as batches:
        next(batches), next(batches)  # of one process, and of the other
        for decoder in decoders_of(os.getpid()):
            for signum in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
                os.kill(decoder, signum)
        assert len(list(batches)) == 1


@pytest.mark.slow("a small /dev/shm is a full disk, with what to enlarge")
@needs.programs("unshare", "mount", packages="util-linux mount", as_root=True)
@pytest.mark.parametrize("size", ["4k", "100k"], ids=["no semaphore", "no image"])
def test_a_small_dev_shm_is_a_full_disk_with_what_to_enlarge(size: str, asked: Request, tmp_path: Path) -> None:
    words = (*words_of(asked), "--image-size", "224", "--epochs", "1", "--run-dir", str(tmp_path / "run"))
    mount = f"mount -t tmpfs -o size={size} none /dev/shm; [ {size} = 100k ] || head -c 4096 /dev/zero >/dev/shm/full"
    command = shlex.join([sys.executable, "-m", "trainer", *words])

    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mount}; {command} --worker-kind processes"], cwd=ROOT,
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip

    assert ended.returncode == 7, ended.stderr
    assert "error: no room left in /dev/shm" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("unable to allocate shared memory(shm) for file </x>: No space left on device (28)"), 7),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's"), 7),
        (RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly"), 6),
        (EOFError(), 6),
        (PermissionError(errno.EACCES, "Permission denied"), None),
    ],
)
def test_what_becomes_of_the_processes_is_a_sentence(error: Exception, code: int | None) -> None:
    found = _problem(error)

    assert (found.code if found else None) == code


@pytest.mark.slow("a training that is killed leaves no process that decodes images")
def test_a_training_that_is_killed_leaves_no_decoder(asked: Request) -> None:
    words = (*words_of(asked), "--epochs", "1000", "--worker-kind", "processes")
    words += ("--run-dir", str(asked.cache_dir / "run"))
    training = subprocess.Popen([sys.executable, "-m", "trainer", *words], cwd=ROOT, stdout=subprocess.PIPE)
    with training:
        assert training.stdout is not None
        while b"[METRIC]" not in training.stdout.readline():
            assert training.poll() is None
        decoders = decoders_of(training.pid)
        gone = [os.pidfd_open(decoder) for decoder in decoders]
        training.kill()

    assert len(decoders) == 2
    for decoder in gone:
        assert select.select([decoder], [], [], 10)[0]
        os.close(decoder)


def test_a_process_decodes_into_its_memory_again_once_the_training_has_read_it(tmp_path: Path) -> None:
    tasks = []
    for grey in (0, 100, 200):
        path = tmp_path / f"{grey}.jpg"
        path.write_bytes(simplejpeg.encode_jpeg(np.full((8, 8, 3), grey, np.uint8)))
        tasks.append(Task((Piece(str(path)),), Crops(None, range(1)), 8))

    def arrived(decoded: Decoded) -> Decoded:
        return pickle.loads(ForkingPickler.dumps(decoded))  # type: ignore[no-any-return]

    decoder = _Decoder()
    place = (decoded := decoder[tasks[0]]).pixels.data_ptr()
    first = arrived(decoded)
    black = first.pixels.clone()

    others = [arrived(decoder[task]) for task in tasks[1:]]
    assert torch.equal(first.pixels, black), "it is read, and was written to"
    assert [int(other.pixels.float().mean()) for other in others] == [100, 200]

    del first, decoded
    gc.collect()
    assert decoder[tasks[1]].pixels.data_ptr() == place
