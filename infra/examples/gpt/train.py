"""Trains a small GPT on text, letter by letter, with plain PyTorch: DDP or FSDP over the processes it is started in.

    python train.py --steps 200

The text is the .txt files of the job's data; without any it is the manual that every Python has: pydoc_data.  What it
takes to be stopped and started again are the calls of `kit`: the rest is as you would write it anyway.
"""

import argparse
import os
from collections.abc import Sequence
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from trainer import kit

LETTERS, HEADS = 256, 4  # a letter is a byte of UTF-8
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # with FSDP too: the number of ranks may change


class Block(nn.Module):
    """Attention to the letters before, and a network for each letter."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.think(self.norm2(x))


class GPT(nn.Module):
    """The loss of predicting each next letter."""

    def __init__(self, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, text: Tensor) -> Tensor:  # (B, T + 1) letters
        x = self.letters(text[:, :-1]) + self.places(torch.arange(text.shape[1] - 1, device=text.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), text[:, 1:].flatten())


def read_text() -> tuple[Tensor, Tensor]:
    """The letters to learn from, and the last tenth, to measure by."""
    files = sorted(kit.data_folder().glob("*.txt"))
    text = b"".join(file.read_bytes() for file in files) or "".join(topics[name] for name in sorted(topics)).encode()
    letters = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return letters[: -len(letters) // 10], letters[-len(letters) // 10 :]


def batch(letters: Tensor, step: int, args: argparse.Namespace, rank: int, world: int) -> Tensor:
    """This rank's part of a step's batch, which depends on nothing but the step: there is no sampler to restore."""
    chance = torch.Generator().manual_seed(step)
    starts = torch.randint(len(letters) - args.context, (world, args.batch_size), generator=chance)[rank]
    return torch.stack([letters[start : start + args.context + 1] for start in starts.tolist()]).long()


def spread(model: nn.Module, strategy: str, device: torch.device) -> nn.Module:
    """The model over all ranks: a copy on each, or a part of it."""
    if not dist.is_initialized():
        return model
    if strategy == "ddp":
        return DistributedDataParallel(model, [device] if device.type == "cuda" else None)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def mean(loss: Tensor, world: int) -> Tensor:
    """Over all ranks, which must all call."""
    total = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(total)
    return total / world


def settings(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=8, help="texts of a step, on each rank")
    parser.add_argument("--context", type=int, default=64, help="letters of a text")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    return parser.parse_args(argv)


def join() -> tuple[torch.device, int, int]:
    """This process's device, its rank, and how many there are, by torchrun's variables; without them it is alone."""
    has_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if has_gpu else "cpu")
    if "RANK" not in os.environ:
        return device, 0, 1
    dist.init_process_group("nccl" if has_gpu else "gloo", device_id=device if has_gpu else None)
    return device, dist.get_rank(), dist.get_world_size()


def restore(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The number of steps that are done: those of the newest checkpoint, if there is one."""
    state = kit.load()
    if state is None:
        return 0
    parts = {f"{name}_state_dict": state[name] for name in ("model", "optim")}
    set_state_dict(model, optimizer, **parts, options=WHOLE)
    return state["done"]


def save(model: nn.Module, optimizer: torch.optim.Optimizer, done: int) -> None:
    weights, moments = get_state_dict(model, optimizer, options=WHOLE)
    kit.save({"model": weights, "optim": moments, "done": done}, done)


def main(argv: Sequence[str] | None = None) -> None:
    args = settings(argv)
    device, rank, world = join()
    torch.manual_seed(0)
    model = spread(GPT(args.context, args.width, args.layers).to(device), args.strategy, device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    letters, held = read_text()
    done = restore(model, optimizer)
    while done < args.steps:
        # A warm-up, then a straight line down to a tenth; from the step alone, as the batch is.
        optimizer.param_groups[0]["lr"] = args.lr * min((done + 1) / 20, 1 - 0.9 * done / args.steps)
        loss = model(batch(letters, done, args, rank, world).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done % 5 == 0:
            kit.metric(step=done, loss=mean(loss, world))
        stop = kit.should_stop()
        if stop or done % args.every == 0 or done == args.steps:
            with torch.no_grad():
                held_loss = sum(model(batch(held, step, args, rank, world).to(device)) for step in range(8)) / 8
            kit.metric(step=done, held_loss=mean(held_loss, world))
            save(model, optimizer, done)
        if stop:
            raise SystemExit(kit.AGAIN)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
