"""Runs Slurm's commands.  Reads only, except for `scancel` and `sbatch`, which verbs.py and submit.py run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launch.core import shell
from launch.slurm import listing
from launch.slurm.explain import explain, missing
from launch.slurm.folder import name_in, task_in
from launch.slurm.listing import Partition, QueuedJob
from launch.slurm.options import SlurmOptions
from trainer.errors import MachineError, SettingsError

# Other variables of an enclosing job would contradict the flags of a job submitted from within it.
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True)
class Slurm:
    """Access to Slurm by its commands."""

    env: Mapping[str, str]  # of the commands, and of the jobs

    def run(self, *command: str, stdin: str = "", options: SlurmOptions | None = None) -> str:
        """The command's output.  Raises TrainerError with an explanation.  options: of the job concerned."""
        program = command[0]
        try:
            return shell.output_of(command, stdin, self.env)
        except FileNotFoundError as error:
            raise missing(program) from error
        except MachineError as error:
            raise explain(program, _message(str(error)), options) from error

    def queue(self) -> list[QueuedJob]:
        """The user's waiting and running jobs of the toolkit, oldest first."""
        text = self.run("squeue", "--me", "--array", "--noheader", "--format", listing.QUEUE)
        jobs = listing.parse_queue(text, lambda folder, name: name_in(folder) == name, task_in)
        return sorted(jobs, key=lambda job: job.number)

    def partitions(self) -> list[Partition]:
        """The cluster's partitions, once for each kind of nodes."""
        # %P marks the default with a star, which may also be part of a name; hence a separate query.
        marked = self.run("sinfo", "--noheader", "--format", "%P\t%R")
        default = listing.parse_default_partition(marked)
        return listing.parse_partitions(self.run("sinfo", "--noheader", "--format", listing.PARTITIONS), default)

    def expected_start(self, script: str, options: SlurmOptions) -> str | None:
        """When Slurm expects to start the job, or None.  Raises TrainerError if it would refuse the job."""
        # sbatch --test-only writes to standard error even on success.
        both = 'if out=$(sbatch --test-only 2>&1); then echo "$out"; else code=$?; echo "$out" >&2; exit $code; fi'
        return listing.parse_start(self.run("bash", "-c", both, stdin=script, options=options))

    def last_state(self, job: str) -> str:
        """Slurm's state of a job that left the queue; empty if Slurm has forgotten it."""
        try:
            return listing.parse_state(self.run("scontrol", "show", "job", job))
        except SettingsError:  # the controller has forgotten the job; accounting, if there is any, has not
            return self._state_in_accounting(job)

    def _state_in_accounting(self, job: str) -> str:
        try:
            rows = self.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").splitlines()
        except SettingsError:
            return ""
        return rows[-1].partition(" ")[0] if rows else ""


def _message(text: str) -> str:
    """'sbatch failed: sbatch: error: Invalid' -> 'Invalid'."""
    return re.sub(r"^\w+ failed: |\b\w+: (?:error|fatal): |allocation failure: |slurm_load_\w+ error: ", "", text)


def environment(env: Mapping[str, str], directives: Sequence[str] = ()) -> dict[str, str]:
    """`env` for sbatch, without variables of an enclosing job or that override one of `directives`."""
    flags = {flag.removeprefix("--").partition("=")[0] for flag in directives}
    overriding = {"SBATCH_" + flag.upper().replace("-", "_") for flag in flags}
    overriding |= {"SBATCH_TIMELIMIT", "SBATCH_ARRAY_INX", "SBATCH_WAIT"}
    kept = {}
    for name, value in env.items():
        is_of_a_job = name.startswith(("SLURM_", "SRUN_")) and name not in KEPT
        if not is_of_a_job and name not in overriding:
            kept[name] = value
    return kept
