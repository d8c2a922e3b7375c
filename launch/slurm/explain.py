"""Slurm's error messages and wait reasons as sentences with a remedy.  Pure."""

from launch.core.errors import NotSetUp
from launch.slurm.options import SlurmOptions
from trainer.errors import MachineError, SettingsError, TrainerError

# Part of Slurm's message -> the sentence; {option} is the option's value.
REFUSED = {
    "Invalid partition name": "the cluster has no partition {partition}; `sinfo -s` lists them.",
    "Invalid account or account/partition": "Slurm does not accept account {account} with partition {partition} and "
    "QOS {qos}; `sacctmgr show associations user=$USER` lists your combinations.",
    "Invalid qos": "you may not use QOS {qos}; `sacctmgr show associations user=$USER format=qos` lists yours, give "
    "one as --qos.",
    "Job violates accounting/QOS policy": "the job asks for more than your account or QOS allows at a time; lower "
    "--nodes, --gpus-per-node or --time, or give another --qos; of a sweep each run counts: do some with --only.",
    "time limit is invalid": "--time {time} is more than partition {partition} allows; `sinfo -o '%P %l'` lists the "
    "limits.  Give less: the job requeues itself at its limit.",
    "Memory specification can not": "no node has --mem {mem}; give less.",
    "Invalid feature specification": "no node has --constraint {constraint}; `sinfo -o '%P %f'` lists the features.",
    "Invalid node name": "the cluster does not have all nodes of --nodelist {nodelist} --exclude {exclude}; `sinfo -N` "
    "lists them.",
    "Invalid generic resource": "the cluster has no such GPUs; `sinfo -o '%P %G'` lists them.  Correct --gpu-type, or "
    "give --device cpu.",
    "Requested node configuration is not available": "partition {partition} does not have {nodes} nodes with {gpus} "
    "GPUs and --cpus-per-task {cpus_per_task} for each process; `sinfo -o '%P %D %c %G'` lists its nodes.",
    "More processors requested than permitted": "nodes of partition {partition} have fewer CPUs than --cpus-per-task "
    "{cpus_per_task} needs; give fewer.",
    "Node count specification invalid": "a job may not use {nodes} nodes of partition {partition}; give fewer.",
    "Invalid --time": "--time {time}: write minutes, H:MM:SS, D-H or D-HH:MM:SS, such as 4:00:00.",
    "reservation is invalid": "you have no reservation {reservation}; `scontrol show reservation` lists them.",
    "User's group not permitted": "you may not use partition {partition}; give another as --partition.",
}  # fmt: skip
UNREACHABLE = (
    "Unable to contact slurm controller", "Socket timed out", "Connection refused", "Zero Bytes were transmitted",
)  # fmt: skip
NOT_CONFIGURED = (
    "Could not establish a configuration source", "Unable to process configuration file", "ClusterName needs",
)  # fmt: skip


def explain(program: str, message: str, options: SlurmOptions | None = None) -> TrainerError:
    """The error for the message with which `program` failed.  options: of the job concerned."""
    if any(part in message for part in UNREACHABLE):
        return MachineError(
            f"Slurm's controller does not answer {program} ({message}); try again, and if it persists, ask your "
            "administrator."
        )
    if any(part in message for part in NOT_CONFIGURED):
        return NotSetUp(f"{program} finds no slurm.conf; run this on a login node of the cluster, or set SLURM_CONF.")
    if options is not None:
        for part, sentence in REFUSED.items():
            if part.lower() in message.lower():
                return SettingsError(sentence.format(**_given(options)) + f"  (Slurm: {message})")
    return SettingsError(f"Slurm refused: {message}")


def missing(program: str) -> NotSetUp:
    """The error for a machine without Slurm."""
    return NotSetUp(
        f"{program} is not installed on this machine; run this on a login node of the cluster. --dry-run shows the "
        "script anywhere."
    )


def _given(options: SlurmOptions) -> dict[str, str]:
    given = {name: _as_text(value) for name, value in options.model_dump().items()}
    gpus = str(options.gpus_per_node or 0)
    given["gpus"] = f"{gpus} {options.gpu_type}" if options.gpu_type else gpus
    given["partition"] = options.partition or "(the default)"
    return given


def _as_text(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value)) or "(none given)"
    return "(none given)" if value is None else str(value)


# Slurm's reason why a job waits -> an explanation, with a remedy if there is one.
WAITS = {
    "None": "waiting to be scheduled",
    "Resources": "waits for busy nodes",
    "Priority": "waits for jobs with a higher priority",
    "BeginTime": "waits for its start time, after it was requeued",
    "JobArrayTaskLimit": "waits for other runs of its sweep: --parallel says how many run at a time",
    "Dependency": "waits for another job to end, of this name or of its sweep",
    "PartitionConfig": "will never start: the partition cannot provide that much; stop it and ask for less",
    "PartitionTimeLimit": "will never start: --time exceeds the partition's limit; stop it and give less",
    "PartitionNodeLimit": "will never start: the partition allows fewer nodes per job; stop it and ask for less",
    "PartitionDown": "waits for the partition to come up",
    "ReqNodeNotAvail": "waits for nodes that are down or reserved",
    "QOSMaxJobsPerUserLimit": "waits for your other jobs: your QOS limits how many run at once",
    "QOSMaxGRESPerUser": "waits for your other jobs: your QOS limits how many GPUs you use at once",
    "AssocGrpBillingMinutes": "waits for budget: your account has used its share",
    "AssocGrpGRES": "waits for your account's other jobs: it may use no more GPUs at a time",
    "JobHeldUser": "is held; `scontrol release {id}` releases it",
    "JobHeldAdmin": "is held by an administrator",
}


def why_it_waits(reason: str, job_id: str) -> str:
    """'Resources' -> 'waits for busy nodes (Resources)'."""
    for word, sentence in WAITS.items():
        if reason.startswith(word):
            return f"{sentence.format(id=job_id)} ({reason})"
    return f"waits ({reason})"
