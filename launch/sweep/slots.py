"""Where runs beside each other go: an equal part of this machine's cores and GPUs each."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from launch.core import shell
from launch.sweep.planned import Planned
from trainer.errors import MachineError, SettingsError


@dataclass(frozen=True)
class Slot:
    """cores, gpus: their numbers; gpus as CUDA_VISIBLE_DEVICES has them."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """`env` with this slot's GPUs only."""
        return {**env, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else dict(env)

    def pin(self) -> None:
        """Keeps this thread, and what it starts from now on, on the slot's cores, where the system can do that."""
        if self.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)


def machine(env: Mapping[str, str]) -> Slot:
    """All cores and GPUs that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = os.sched_getaffinity(0) if has_affinity else range(os.cpu_count() or 1)
    return Slot(tuple(sorted(cores)), _gpus(env))


def _gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        # CUDA sees those before the first that there is not; -1 is how people hide all.
        return tuple(takewhile(lambda word: word and word != "-1", visible.split(",")))
    try:
        listed = shell.output_of(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], env=env)
    except (FileNotFoundError, MachineError):
        return ()
    return tuple(listed.split())


def slots(whole: Slot, count: int, runs: Sequence[Planned]) -> list[Slot]:
    """`count` equal parts of the machine.  Raises SettingsError where a run needs more than one of them."""
    cores, gpus = len(whole.cores) // count, len(whole.gpus) // count
    if not cores:
        raise SettingsError(f"--parallel {count}: this machine has {len(whole.cores)} cores; give at most that many.")
    for run in runs:
        ranks, on_cpu = run.replicas or 1, run.train.device == "cpu" or not whole.gpus
        has, unit = (cores, "core") if on_cpu else (gpus, "GPU")
        if ranks > has:
            raise SettingsError(
                f"--parallel {count} leaves {has} {unit}{'s' * (has != 1)} for each run, and {run.name} trains on "
                f"{ranks}; give a smaller --parallel."
            )
    return [Slot(whole.cores[n * cores : (n + 1) * cores], whole.gpus[n * gpus : (n + 1) * gpus]) for n in range(count)]
