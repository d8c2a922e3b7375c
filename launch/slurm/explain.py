"""What Slurm's commands complain of, in a sentence with what to do.  Pure."""

from launch.core.errors import NotSetUp
from launch.slurm.options import SlurmOptions
from trainer.errors import MachineError, SettingsError, TrainerError

# A part of Slurm's message -> the sentence; {option} is what was given.
REFUSED = {
    "Invalid partition name": "the cluster has no partition {partition}; `sinfo -s` lists them.",
    "Invalid account or account/partition": "Slurm does not take account {account} with partition {partition} and QOS "
    "{qos}; `sacctmgr show associations user=$USER` lists what you may take.",
    "Invalid qos": "Slurm does not take QOS {qos} for you; `sacctmgr show associations user=$USER format=qos` lists "
    "yours, give one as --qos.",
    "Job violates accounting/QOS policy": "the job asks for more than your account or QOS may have at a time; lower "
    "--nodes, --gpus-per-node or --time, or give another --qos.",
    "time limit is invalid": "--time {time} is more than partition {partition} allows; `sinfo -o '%P %l'` lists the "
    "limits.  Give less: the job goes on after it, by itself.",
    "Memory specification can not": "no node has --mem {mem}; give less.",
    "Invalid feature specification": "no node has --constraint {constraint}; `sinfo -o '%P %f'` lists them.",
    "Invalid node name": "the cluster does not know all of --nodelist {nodelist} --exclude {exclude}; `sinfo -N` lists "
    "the nodes.",
    "Invalid generic resource": "the cluster has no GPUs under that name; `sinfo -o '%P %G'` lists them.  Correct "
    "--gpu-type, or give --device cpu.",
    "Requested node configuration is not available": "no {nodes} nodes of partition {partition} have {gpus} GPUs and "
    "--cpus-per-task {cpus_per_task} for each process; `sinfo -o '%P %D %c %G'` lists what there is.",
    "More processors requested than permitted": "nodes of partition {partition} have fewer CPUs than --cpus-per-task "
    "{cpus_per_task} asks for; give fewer.",
    "Node count specification invalid": "partition {partition} gives no {nodes} nodes to a job; give fewer.",
    "Invalid --time": "--time {time}: write minutes, H:MM:SS, D-H or D-HH:MM:SS, such as 4:00:00.",
    "reservation is invalid": "there is no reservation {reservation} for you; `scontrol show reservation` lists them.",
    "User's group not permitted": "you may not use partition {partition}; give another as --partition.",
}  # fmt: skip
SILENT = ("Unable to contact slurm controller", "Socket timed out", "Connection refused", "Zero Bytes were transmitted")
NOT_HERE = ("Could not establish a configuration source", "Unable to process configuration file", "ClusterName needs")


def explained(program: str, said: str, options: SlurmOptions | None = None) -> TrainerError:
    """The error for what `program` said when it failed."""
    if any(part in said for part in SILENT):
        return MachineError(
            f"Slurm's controller does not answer {program} ({said}); try again, and if that lasts ask who runs it."
        )
    if any(part in said for part in NOT_HERE):
        return NotSetUp(
            f"{program} finds no slurm.conf here; run this on a login node of the cluster, or set SLURM_CONF."
        )
    for part, sentence in REFUSED.items():
        if options is not None and part.lower() in said.lower():
            return SettingsError(sentence.format(**_given(options)) + f"  (Slurm: {said})")
    return SettingsError(f"Slurm refused: {said}")


def missing(program: str) -> NotSetUp:
    """The error for a machine without Slurm."""
    return NotSetUp(
        f"there is no {program} here; run this on a login node of the cluster. --dry-run shows the script anywhere."
    )


def _given(options: SlurmOptions) -> dict[str, str]:
    given = {name: _word(value) for name, value in options.model_dump().items()}
    kind = f"{options.gpu_type} " if options.gpu_type else ""
    partition = options.partition or "(the default)"
    return {**given, "gpus": f"{options.gpus_per_node or 0} {kind}".strip(), "partition": partition}


def _word(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value)) or "(none given)"
    return "(none given)" if value is None else str(value)


# Why a job waits: Slurm's reason -> in words, with what to do where there is something.
WAITS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "for nodes that are busy",
    "Priority": "for jobs that go first",
    "BeginTime": "until it may start again, after it was requeued",
    "Dependency": "for another job of this name to end",
    "PartitionConfig": "for ever: the partition never gives so much; stop it and ask for less",
    "PartitionTimeLimit": "for ever: --time is over the partition's limit; stop it and give less",
    "PartitionNodeLimit": "for ever: the partition gives fewer nodes to a job; stop it and ask for less",
    "PartitionDown": "for the partition to be opened",
    "ReqNodeNotAvail": "for nodes that are down or reserved",
    "QOSMaxJobsPerUserLimit": "for your other jobs: your QOS runs no more at a time",
    "QOSMaxGRESPerUser": "for your other jobs: your QOS gives no more GPUs at a time",
    "AssocGrpBillingMinutes": "for hours: your account has used its share",
    "AssocGrpGRES": "for your account's other jobs: it gets no more GPUs at a time",
    "JobHeldUser": "to be released: `scontrol release` lets it go on",
    "JobHeldAdmin": "held by who runs the cluster",
}


def waits(reason: str) -> str:
    """'Resources' -> 'for nodes that are busy'."""
    known = next((text for word, text in WAITS.items() if reason.startswith(word)), None)
    return f"waits {known} ({reason})" if known else f"waits ({reason})"
