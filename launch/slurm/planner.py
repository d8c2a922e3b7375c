"""Job and facts -> the script to submit, its folder, and the problems.  Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from launch.aws import upload
from launch.core import catalog
from launch.core.catalog import Instance
from launch.core.clock import duration
from launch.core.earlier import Earlier, setting_in, with_time
from launch.core.job import Job
from launch.core.manifest import Content
from launch.core.plan import Fact, Plan
from launch.core.quote import Quote, images_in
from launch.core.training.base import Training
from launch.slurm import container
from launch.slurm.checks import against_cluster
from launch.slurm.folder import JobFolder, details
from launch.slurm.listing import Partition, QueuedJob, limit_s
from launch.slurm.names import ARCHIVE, EDF, SCRIPT, WORK, command
from launch.slurm.options import SlurmOptions
from launch.slurm.script import ResolvedJob, render
from trainer.errors import SettingsError, TrainerError


@dataclass(frozen=True)
class Facts:
    """The results of the look-ups, for the planner."""

    folder: JobFolder
    cwd: Path
    python: str
    partitions: tuple[Partition, ...] = ()  # empty if Slurm did not answer, as the queue
    queue: tuple[QueuedJob, ...] = ()
    trouble: TrainerError | None = None  # why Slurm did not answer
    content: Content | None = None  # of a prepared data set
    earlier: tuple[Earlier, ...] = ()  # jobs that trained the same script, newest first


@dataclass(frozen=True)
class Submission:
    """What performing a plan needs."""

    job: ResolvedJob
    script: str
    queued: QueuedJob | None  # the same job, if it is already in the queue
    is_done: bool  # it has finished before, with the same script
    ids: tuple[str, ...] = ()  # Slurm's, of its earlier submissions


SlurmPlan = Plan[Submission]


def plan(job: Job[SlurmOptions], options: SlurmOptions, processes: int, name: str, facts: Facts) -> SlurmPlan:
    """The plan for `job`.  options, processes: from checks.resolve()."""
    resolved = _resolved(job.train, options, processes, name, facts)
    script, edf = render(resolved), container.edf(options, resolved.cwd, resolved.needed_folders)
    queued = next((queued for queued in facts.queue if queued.name == name), None)
    last_start = facts.folder.last_start
    is_done = last_start is not None and last_start["then"] == "done" and facts.folder.script == script
    submission = Submission(resolved, script, queued, is_done, facts.folder.ids)
    return Plan(
        title=f"launch.slurm: job {name}, {options.nodes} x {processes} process{'es' * (processes > 1)}",
        payload=submission,
        facts=tuple(_facts(submission, facts)),
        command=("sbatch", "--parsable", str(resolved.folder / SCRIPT)),
        files=((SCRIPT, script), *([(EDF, edf)] if edf else [])),
        quotes=tuple(_quotes(resolved, facts)),
        warnings=(*job.notes, *_warnings(resolved, job.where, facts.partitions)),
        problems=tuple(_problems(submission, facts, may_adopt=job.train.run_dir is not None)),
    )


def with_answer(plan: SlurmPlan, start: str | None, refusal: TrainerError | None) -> SlurmPlan:
    """`plan` with Slurm's answer: the expected start of the job, or its refusal."""
    if refusal:
        return replace(plan, problems=(*plan.problems, refusal))
    if start is None:
        return plan
    return replace(plan, facts=(*plan.facts, Fact("expected_start", start, f"expected by Slurm at {start}", "start")))


def _resolved(train: Training, options: SlurmOptions, processes: int, name: str, facts: Facts) -> ResolvedJob:
    is_contained = container.is_used(options)
    folder = facts.folder.path
    train = train.called(name).sent(folder / ARCHIVE, folder / WORK).at(run_dir=folder)
    if options.gpus_per_node:
        train = train.on_gpus()
    if is_contained:  # as its folders are outside
        train = train.at(**{name: facts.cwd / path.expanduser() for name, path in train.folders.items()})
    return ResolvedJob(
        name=name,
        train=train,
        options=options,
        folder=facts.folder.path,
        cwd=facts.cwd,
        python="python" if is_contained else facts.python,
        processes=processes,
    )


def _problems(submission: Submission, facts: Facts, *, may_adopt: bool) -> Iterator[TrainerError]:
    """Why the job cannot be submitted.  may_adopt: the folder was given, so it may hold a run that began elsewhere."""
    job = submission.job
    if submission.queued:
        yield from _conflicts(submission.queued, submission, facts.folder)
    if facts.folder.exists and not facts.folder.is_job and not may_adopt:
        yield SettingsError(
            f"{facts.folder.path} exists, and launch.slurm did not make it; choose another --job-name, remove the "
            "folder, or resume the run in it with --run-dir."
        )
    if facts.partitions and not submission.queued:
        each = job.options.cpus_per_task
        yield from against_cluster(job.options, each and each * job.processes, facts.partitions)
    # Last, as the plan is complete without Slurm; other problems are more important.
    if facts.trouble:
        yield facts.trouble


def _conflicts(queued: QueuedJob, submission: Submission, folder: JobFolder) -> Iterator[TrainerError]:
    """Conflicts of the job's name with jobs in the queue."""
    name = submission.job.name
    if queued.folder != submission.job.folder:
        yield SettingsError(
            f"--job-name {name} is taken by job {queued.id}, which writes to {queued.folder}; choose another name, "
            f"or stop that job: {command('stop', queued.id)}"
        )
    elif folder.script != submission.script:
        why = upload.edited(folder.script or "", submission.script)
        how = f", and {why}" if why else f" with other settings ({folder.path / SCRIPT})"
        yield SettingsError(
            f"job {name} is in the queue as {queued.id}{how}; choose another "
            f"--job-name, or stop that job: {command('stop', name)}"
        )


def _facts(submission: Submission, facts: Facts) -> Iterator[Fact]:
    job, options = submission.job, submission.job.options
    yield Fact("job", job.name, ())
    yield from _machine_facts(job, facts.partitions)
    how = "torchrun on each node" if job.is_torchrun else "srun, one task per process"
    yield Fact("processes", options.nodes * job.processes, f"{options.nodes * job.processes}, started by {how}")
    yield from _time_facts(options)
    yield Fact("folder", str(job.folder))
    if facts.content:
        place = job.train.data_url or job.train.folders["data_dir"]
        yield Fact("data", asdict(facts.content), f"{place}: {facts.content.in_words}")
    yield from upload.facts(job.train, facts.earlier)
    if container.is_used(options):
        image = str(options.container_edf or options.container_image)
        yield Fact("container", image, image if options.container_edf else f"{image} ({options.container_runtime})")
    if queued := submission.queued:
        yield Fact("queued_as", queued.id, f"as job {queued.id}, {queued.state.lower()}", "in the queue")
    if submission.is_done:
        yield Fact("is_done", True, "yes, by this very script; nothing will be submitted", "done")


def _machine_facts(job: ResolvedJob, partitions: Sequence[Partition]) -> Iterator[Fact]:
    options, gpus = job.options, job.options.gpus_per_node or 0
    partition = options.partition
    if partition is None:
        default = next((part.name for part in partitions if part.is_default), None)
        partition = f"{default} (the default)" if default else "(the default)"
    of_type = f"{options.gpu_type} " if options.gpu_type else ""
    each = f"{gpus} {of_type}GPU{'s' * (gpus != 1)} each" if gpus else "no GPU"
    yield Fact("nodes", options.nodes, f"{options.nodes}, {each}, in partition {partition}")
    yield Fact("gpus_per_node", gpus, ())
    yield Fact("gpu_type", options.gpu_type, ())
    yield Fact("partition", options.partition, ())


def _time_facts(options: SlurmOptions) -> Iterator[Fact]:
    limit, starts = limit_s(options.time), options.max_restarts + 1
    text = f"{duration(timedelta(seconds=limit))} per start; saves {options.save_before_s} s before, and is requeued"
    yield Fact("time_limit_s", limit, text, "time limit")
    yield Fact("most_starts", starts, f"at most {starts}", "starts")
    units, unit = options.nodes * (options.gpus_per_node or 1), "GPU" if options.gpus_per_node else "node"
    most_h = units * limit / 3600
    total = f"{most_h:,.4g} {unit}-hours per start, {most_h * starts:,.4g} in total"
    yield Fact(f"most_{unit.lower()}_hours", most_h * starts, total, "at most")


def _quotes(job: ResolvedJob, facts: Facts) -> Iterator[Quote]:
    """The forecast, if the nodes' GPU is known and the catalog has a machine with it.

    A script's time is the user's estimate, or that of an earlier job.
    """
    if setting := setting_in(details(job)):
        yield with_time(Quote(setting.machines, job.options.nodes, "allocation"), job.train, setting, facts.earlier)
        return
    gpus = job.options.gpus_per_node
    gpu_type = _gpu_type(job.options, facts.partitions)
    machine = _machine_with(gpu_type) if gpus and gpu_type else None
    if machine is None or not gpus:
        return
    cpus_per_process = job.options.cpus_per_task or machine.vcpus // machine.gpus
    node = replace(machine, gpus=gpus, vcpus=cpus_per_process * job.processes)
    images = images_in(facts.content)
    forecast, why_unknown = job.train.expect(node, job.options.nodes, on_ebs=False, images=images)
    yield Quote(
        f"{job.options.nodes} x {gpus} {gpu_type}",
        job.options.nodes,
        "allocation",
        forecast=forecast,
        why_unknown=why_unknown,
    )


def _gpu_type(options: SlurmOptions, partitions: Sequence[Partition]) -> str | None:
    """--gpu-type, or the only type in the job's partitions."""
    if options.gpu_type:
        return options.gpu_type
    types = set()
    for partition in partitions:
        if options.partition in (None, partition.name):
            types |= {name for name, _ in partition.gpus}
    return types.pop() if len(types) == 1 else None


def _gpus_of_each(options: SlurmOptions, partitions: Sequence[Partition]) -> int:
    """The lowest number of GPUs per node in the job's partitions; 0 if unknown."""
    counts = [
        partition.gpus_of(options.gpu_type)
        for partition in partitions
        if partition.name in (options.partition or "").split(",") or (not options.partition and partition.is_default)
    ]
    return min(filter(None, counts), default=0)


def _machine_with(gpu_type: str) -> Instance | None:
    """A machine of the catalog with GPUs of that type."""
    for instance in catalog.load().values():
        if instance.gpu_model and instance.gpu_model.upper() == gpu_type.upper():
            return instance
    return None


def _warnings(job: ResolvedJob, given: SlurmOptions, partitions: Sequence[Partition]) -> Iterator[str]:
    """Warnings about the job's resources.  given: the options before resolution."""
    most = _gpus_of_each(given, partitions)
    if given.gpus_per_node is None and job.options.gpus_per_node and most > job.options.gpus_per_node:
        yield f"nodes have {most} GPUs, and the job takes {job.options.gpus_per_node}; --gpus-per-node asks for more."
    if job.options.cpus_per_task is None:
        yield "without --cpus-per-task most clusters give each task one CPU, too few to decode images for a GPU."
    if job.options.container_edf:
        yield f"your EDF must mount {job.folder} at the same path, or the results are lost."
