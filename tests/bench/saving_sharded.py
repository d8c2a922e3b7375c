"""How long two ranks under FSDP wait for a checkpoint, and what memory it takes: on rank 0, and by shards.

python -m tests.bench.saving_sharded

ViT-B/16 with AdamW, on the CPU.  "gathered, twice" is how earlier versions saved, "gathered" how it is now,
"DCP" torch.distributed.checkpoint as it comes, each rank its own shard, "DCP, async" its async_save().
"""

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchvision import models

from trainer.state import plain
from trainer.state.checkpoint import write
from trainer.state.snapshot import copied
from trainer.strategies.fsdp import whole

RANKS, RUNS = 2, 3

Save = Callable[[dict[str, Any], Path], Callable[[], object]]  # returns what waits for the disk


def gathered_twice(state: dict[str, Any], path: Path) -> Callable[[], object]:
    tree = copied(whole(state, keep=dist.get_rank() == 0))
    return (lambda: write(path, plain.dumps(tree))) if dist.get_rank() == 0 else lambda: None


def gathered(state: dict[str, Any], path: Path) -> Callable[[], object]:
    tree = whole(state, keep=dist.get_rank() == 0)
    return (lambda: write(path, plain.pieces(tree))) if dist.get_rank() == 0 else lambda: None


def sharded(state: dict[str, Any], path: Path) -> Callable[[], object]:
    dcp.save(state, checkpoint_id=path)
    return lambda: None


def sharded_beside(state: dict[str, Any], path: Path) -> Callable[[], object]:
    return dcp.async_save(state, checkpoint_id=path).result


ARMS: dict[str, Save] = {
    "gathered, twice": gathered_twice, "gathered": gathered, "DCP": sharded, "DCP, async": sharded_beside,
}  # fmt: skip


def peak_mb() -> float:
    """The most memory since forget_peak()."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def forget_peak() -> float:
    """MB that are used now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def rank(number: int, folder: str, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=RANKS)
    model = models.vit_b_16()
    for part in model.encoder.layers:
        fully_shard(part, mesh=(mesh := init_device_mesh("cpu", (RANKS,))))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for name, save in ARMS.items():
        rows = [measured(save, model, optimizer, Path(folder) / f"{name}-{run}") for run in range(RUNS)]
        table: list[Any] = [None] * RANKS
        dist.all_gather_object(table, [statistics.median(column) for column in zip(*rows, strict=True)])
        if number == 0:
            (waits, whole_s, mb), others = table[0], table[1]
            print(f"{name:16} waits {waits:6.2f} s, on disk after {whole_s:6.2f} s, "
                  f"rank 0 {mb:6.0f} MB more, rank 1 {others[2]:6.0f} MB", flush=True)  # fmt: skip
    dist.destroy_process_group()


def measured(save: Save, model: Any, optimizer: Any, path: Path) -> tuple[float, float, float]:
    """Seconds that the training waits, seconds until it is on disk, and the most memory beside the training's in MB."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    dist.barrier()
    before, began = forget_peak(), time.perf_counter()
    finish = save(state, path)
    waits = time.perf_counter() - began
    finish()
    dist.barrier()
    return waits, time.perf_counter() - began, peak_mb() - before


def main() -> int:
    parameters = sum(weight.numel() for weight in models.vit_b_16().parameters())
    print(f"ViT-B/16 with AdamW: {parameters * 12 / 1e6:.0f} MB in all; {RANKS} ranks, medians of {RUNS}, "
          f"torch {torch.__version__}", flush=True)  # fmt: skip
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**16)  # what is freed goes back at once, and is not counted again
    with TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        multiprocessing.spawn(rank, (folder, port), RANKS)  # type: ignore[no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(main())
