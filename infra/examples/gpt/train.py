"""Trains a small GPT on text, letter by letter, with plain PyTorch: DDP or FSDP over the processes it is started in.

    python train.py --steps 200

The text is the .txt files of the job's data; without any it is the manual that every Python has: pydoc_data.  What it
takes to be stopped and started again are the calls of `kit`: the rest is as you would write it anyway.
"""

import argparse
import os
from functools import partial
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from trainer import kit

LETTERS, HEADS = 256, 4  # a letter is a byte of UTF-8
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # with FSDP too: the number of ranks may change


class GPT(nn.Module):
    """The loss of predicting each next letter from those before."""

    def __init__(self, context: int, width: int, layers: int) -> None:
        super().__init__()
        block = partial(nn.TransformerEncoderLayer, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(block(width, HEADS, 4 * width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, text: Tensor) -> Tensor:  # (B, T + 1) letters
        seen, wanted = text[:, :-1], text[:, 1:]
        x = self.letters(seen) + self.places(torch.arange(seen.shape[1], device=text.device))
        no_later_ones = nn.Transformer.generate_square_subsequent_mask(seen.shape[1], device=text.device)
        for block in self.blocks:
            x = block(x, no_later_ones, is_causal=True)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), wanted.flatten())


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


def join() -> tuple[torch.device, int, int]:
    """This process's device, its rank, and how many there are, by torchrun's variables; without them it is alone."""
    has_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if has_gpu else "cpu")
    if "RANK" not in os.environ:
        return device, 0, 1
    dist.init_process_group("nccl" if has_gpu else "gloo", device_id=device if has_gpu else None)
    return device, dist.get_rank(), dist.get_world_size()


def spread(model: GPT, strategy: str) -> nn.Module:
    """The model over all ranks: a copy on each, or a part of it."""
    if not dist.is_initialized():
        return model
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def settings(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # A batch is a rank's texts of a step, each of `context` letters; a checkpoint is saved `every` so many steps.
    for name, default in {"steps": 300, "batch_size": 8, "context": 64, "width": 96, "layers": 3, "every": 20}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = settings(argv)
    device, rank, world = join()
    torch.manual_seed(0)
    model = spread(GPT(args.context, args.width, args.layers).to(device), args.strategy)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    letters, held = read_text()
    done = 0
    if state := kit.load():  # the newest checkpoint
        weights, moments, done = state["model"], state["optim"], state["done"]
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments, options=WHOLE)
    while done < args.steps:
        # A warm-up, then a straight line down to a tenth; from the step alone, as the batch is.
        optimizer.param_groups[0]["lr"] = args.lr * min((done + 1) / 20, 1 - 0.9 * done / args.steps)
        loss = model(batch(letters, done, args, rank, world).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done % 5 == 0:
            kit.metric(step=done, steps=args.steps, loss=loss.item())  # rank 0's
        stop = kit.should_stop()
        if stop or done % args.every == 0 or done == args.steps:
            with torch.no_grad():
                held_loss = sum(model(batch(held, step, args, rank, world).to(device)) for step in range(8)) / 8
            kit.metric(step=done, steps=args.steps, held_loss=held_loss.item())
            weights, moments = get_state_dict(model, optimizer, options=WHOLE)
            kit.save({"model": weights, "optim": moments, "done": done}, done)
        if stop:
            raise SystemExit(kit.AGAIN)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
