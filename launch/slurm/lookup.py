"""Asks Slurm, and reads job folders.  Nothing here changes anything, but for `scancel` and `sbatch`, which Slurm.tell
runs for submit.py and acts.py.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.core import shell
from launch.slurm import listing
from launch.slurm.explain import explained, missing
from launch.slurm.listing import Partition, Queued
from launch.slurm.names import BACKEND, SCRIPT, SPEC, STARTS
from launch.slurm.options import SlurmOptions
from trainer.errors import MachineError, SettingsError

# What a job passes on to what is submitted from within it would contradict the new job's own flags.
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True)
class Slurm:
    """Slurm's commands.  env: the environment that they, and the jobs, get."""

    env: Mapping[str, str]

    def tell(self, *command: str, stdin: str = "", options: SlurmOptions | None = None) -> str:
        """What the command prints.  Raises TrainerError with a sentence; options: of the job that it is about."""
        program = command[0]
        try:
            return shell.output_of(command, stdin, self.env)
        except FileNotFoundError as error:
            raise missing(program) from error
        except MachineError as error:
            raise explained(program, _plain(str(error)), options) from error

    def queue(self) -> list[Queued]:
        """The user's jobs of the toolkit that wait or run, oldest first."""
        found = listing.queued(self.tell("squeue", "--me", "--noheader", "--format", listing.QUEUE))
        return sorted(found, key=lambda job: int("".join(c for c in job.id.partition("_")[0] if c.isdigit()) or 0))

    def partitions(self) -> list[Partition]:
        """Where jobs may run."""
        # %P marks the default with a star, which a name may have, too: so it is asked for apart.
        marked = self.tell("sinfo", "--noheader", "--format", "%P\t%R").splitlines()
        default = next((name for mark, name in (line.split("\t") for line in marked) if mark != name), None)
        return listing.partitions(self.tell("sinfo", "--noheader", "--format", listing.PARTITIONS), default)

    def expected_start(self, script: str, options: SlurmOptions) -> str | None:
        """When Slurm thinks that the job would start, or None.  Raises TrainerError where it would refuse the job."""
        # It answers on standard error, also where all is well.
        both = 'if said=$(sbatch --test-only 2>&1); then echo "$said"; else code=$?; echo "$said" >&2; exit $code; fi'
        return listing.start_in(self.tell("bash", "-c", both, stdin=script, options=options))

    def last_state(self, job: str) -> tuple[str, str]:
        """State and exit code of a job that left the queue, as long as Slurm remembers it; else empty."""
        try:
            return listing.state_in(self.tell("scontrol", "show", "job", job))
        except SettingsError:  # forgotten; where there is accounting, that knows
            return self._accounted(job)

    def _accounted(self, job: str) -> tuple[str, str]:
        try:
            rows = self.tell("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,ExitCode").splitlines()
        except SettingsError:
            return "", ""
        state, _, code = (rows[-1] if rows else "").partition("|")
        return (state.split() or [""])[0], code


def _plain(said: str) -> str:
    """'sbatch failed: sbatch: error: Invalid' -> 'Invalid'."""
    return re.sub(r"^\w+ failed: |\b\w+: (?:error|fatal): |allocation failure: |slurm_load_\w+ error: ", "", said)


def environment(env: Mapping[str, str], directives: Sequence[str] = ()) -> dict[str, str]:
    """`env` for sbatch: without what another job around us left, and what would override a flag that was given."""
    flags = {flag.removeprefix("--").partition("=")[0] for flag in directives}
    given = {"SBATCH_" + flag.upper().replace("-", "_") for flag in flags}
    given |= {"SBATCH_TIMELIMIT", "SBATCH_ARRAY_INX", "SBATCH_WAIT"}
    return {
        name: value
        for name, value in env.items()
        if (not name.startswith(("SLURM_", "SRUN_")) or name in KEPT) and name not in given
    }


@dataclass(frozen=True)
class Folder:
    """What there is of a job in its folder.  script: as it was submitted; ids: of Slurm; starts: how each ended."""

    path: Path
    exists: bool
    script: str | None
    ids: tuple[str, ...]
    starts: tuple[Mapping[str, Any], ...]

    @property
    def is_ours(self) -> bool:
        return self.script is not None

    @property
    def endings(self) -> int:
        """How many starts saw that Slurm was ending the job, or taking its nodes away for a while."""
        return sum(start["then"] == "slurm" for start in self.starts)

    def ended(self) -> Mapping[str, Any] | None:
        """How the newest submission ended for good, by its own word; None: it did not, or only Slurm knows."""
        mine = [start for start in self.starts if self.ids and start["job"] == self.ids[-1]]
        return mine[-1] if mine and mine[-1]["then"] not in ("requeue", "slurm") else None


def named(job: str, cwd: Path) -> Path | None:
    """The folder of a job of that name, where --run-dir put it below runs/ or into a sweep there."""
    specs = (*cwd.glob(f"runs/*/{SPEC}"), *cwd.glob(f"runs/*/*/{SPEC}"))
    return next((spec.parent for spec in sorted(specs) if name_in(spec.parent) == job), None)


def name_in(folder: Path) -> str | None:
    """What the job of a folder is called; None: it has none of launch.slurm's."""
    try:
        spec = json.loads((folder / SPEC).read_text())
        return str(spec["job"]) if spec["backend"] == BACKEND else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_folder(path: Path) -> Folder:
    """The job folder at `path`, which need not exist.  A line that is not whole is left out."""
    script, spec = path / SCRIPT, path / SPEC
    starts = []
    for line in (path / STARTS).read_text().splitlines() if (path / STARTS).exists() else ():
        try:
            starts.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    ids = json.loads(spec.read_text())["ids"] if spec.exists() else ()
    return Folder(
        path=path,
        exists=path.exists() and any(path.iterdir()),
        script=script.read_text() if script.exists() else None,
        ids=tuple(ids),
        starts=tuple(starts),
    )
