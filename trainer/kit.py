"""Helpers for your own training script: checkpoints, stopping on request, and metrics.
Without a launcher of this toolkit they do nothing: no file is read or written, nothing is printed.  See SCRIPTS.md.

    from trainer import kit  # or copy this file: it does not depend on the rest of the trainer
    dist.init_process_group()
    if state := kit.load():  # the same on all ranks
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(state["step"] + 1 if state else 0, 10_000):
        loss = train_one_step(model, optimizer)
        if step % 100 == 99:
            kit.metric(step=step + 1, steps=10_000, loss=loss)
            stop = kit.should_stop()
            if stop or step % 1000 == 999:
                kit.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, step)
            if stop:
                raise SystemExit(kit.AGAIN)  # to be started again
"""

import hashlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

AGAIN = 75  # the exit code that asks to be started again
_events: set[str] = set()  # "listens": a handler for SIGTERM is installed; "asked": SIGTERM has come


def is_launched() -> bool:
    """Whether a launcher of this toolkit started the script."""
    return "DDP_RUN_DIR" in os.environ


def run_folder() -> Path:
    """The folder for results, which is kept, uploaded, and restored after a restart.  Without a launcher, `.`."""
    return Path(os.environ.get("DDP_RUN_DIR", "."))


def data_folder(otherwise: str | Path = "data") -> Path:
    """The folder of the job's data, or `otherwise` if the job has none."""
    return Path(os.environ.get("DDP_DATA_DIR", otherwise))


def restarts() -> int:
    """How often the job has been restarted."""
    return int(os.environ.get("DDP_RESTARTS", "0"))


def metric(**values: Any) -> None:
    """Print numbers, or tensors of one number, as a line that the launchers read.  Only rank 0 prints."""
    if is_launched() and _is_first():
        texts = [f"{name}={v:d}" if isinstance(v, int) else f"{name}={float(v):.6g}" for name, v in values.items()]
        print("[METRIC]", *texts, flush=True)


def should_stop() -> bool:
    """Whether the script should save and exit, within half a minute.  Requests are noticed from the first call on.
    If torch.distributed is initialised the ranks agree on it, so all must call, every few seconds or so."""
    if not is_launched():
        return False
    if "listens" not in _events:
        _events.add("listens")
        signal.signal(signal.SIGTERM, lambda *_: _events.add("asked"))
    if not (dist := _distributed()):
        return "asked" in _events
    import torch

    flag = torch.tensor("asked" in _events, dtype=torch.int32, device=_device(dist))
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)


def save(state: dict[str, Any], step: int, keep: int = 3) -> None:
    """Save a checkpoint atomically, and remove all but the newest `keep`.  All ranks must call; rank 0 saves.

    state: tensors, numbers, text, and lists and dictionaries of them; raises pickle.UnpicklingError for anything else.
    Raises OSError.
    """
    if not is_launched():
        return
    try:
        if _is_first():
            _write(state, step, keep)
    finally:
        if dist := _distributed():
            dist.barrier()  # no rank exits while rank 0 is saving


def load() -> dict[str, Any] | None:
    """The newest intact checkpoint, on the CPU, or None.  Damaged ones are skipped.
    If torch.distributed is initialised all ranks must call, and get rank 0's: other nodes may not have the file."""
    if not is_launched():
        return None
    import torch

    dist = _distributed()
    data = torch.frombuffer(_newest() if not dist or _is_first() else bytearray(1), dtype=torch.int8)
    if dist:  # as bytes: torch's broadcast of objects would unpickle, and so run, what another machine sends
        dist.broadcast(n := torch.tensor(len(data), device=_device(dist)), src=0)
        dist.broadcast(data := data.to(n.device) if _is_first() else data.to(n.device).new_empty(int(n)), src=0)
    return None if len(data) == 1 else torch.load(io.BytesIO(data.cpu().numpy().data), "cpu", weights_only=True)


def _write(state: dict[str, Any], step: int, keep: int) -> None:
    import torch

    folder = run_folder() / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    (part := folder / ".part").unlink(missing_ok=True)  # left by a killed run
    try:
        with part.open("x+b") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        torch.load(part, map_location="cpu", weights_only=True, mmap=True)  # raises now, rather than after a restart
        part.replace(folder / f"step-{step:010d}-{digest[:16]}.pt")
    finally:
        part.unlink(missing_ok=True)
    for old in sorted(folder.glob("step-*.pt"), reverse=True)[keep:]:
        old.unlink(missing_ok=True)


def _newest() -> bytearray:
    for path in sorted(filter(Path.is_file, (run_folder() / "checkpoints").glob("step-*.pt")), reverse=True):
        data = bytearray(path.read_bytes())
        if path.stem.endswith(hashlib.sha256(data).hexdigest()[:16]):
            return data
        print(f"warning: {str(path)!a} is damaged; the checkpoint before it is used", file=sys.stderr)
    return bytearray(1)  # none


def _is_first() -> bool:
    if dist := _distributed():
        return bool(dist.get_rank() == 0)
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "NODE_RANK", "LOCAL_RANK"))


def _distributed() -> Any:
    """torch.distributed if it is initialised, else None; never imports it."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist and dist.is_available() and dist.is_initialized() else None


def _device(dist: Any) -> Any:
    """The device for collectives: with NCCL the GPU of the process group, or the current one; otherwise the CPU."""
    return (dist.group.WORLD.bound_device_id or "cuda") if dist.get_backend() == "nccl" else "cpu"
