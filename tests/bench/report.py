"""How a benchmark names its machine and prints."""

import platform
from pathlib import Path

import torch


def machine() -> str:
    """The device in words, its cores and torch's version."""
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    info = Path("/proc/cpuinfo")
    names = [line.split(": ")[1] for line in info.read_text().splitlines() if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return f"{name} with {len(names)} cores, torch {torch.__version__}"


def say(line: str) -> None:
    """Prints a line at once, so that a long run can be watched."""
    print(line, flush=True)
