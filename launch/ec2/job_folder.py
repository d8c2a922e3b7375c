"""The job folder in S3: its location, job.json, cluster.json, exit records and stop marker."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, cast

from launch.aws import lookup
from launch.aws.client import Aws
from launch.aws.instances.inventory import Fleet, Node
from launch.aws.lookup import spec_of
from launch.aws.names import Folder, bucket_of
from launch.aws.results import fetch_at_end, fetch_run
from launch.core.errors import AwsError
from launch.core.job import Job
from launch.core.jobs import Choice, Results, without_checkpoints
from launch.core.plan import put_once
from launch.core.terminal import Say
from launch.core.training.options import training_from
from launch.ec2.backend import BACKEND_NAME, DATA_DEVICE, command
from launch.ec2.options import Ec2Options
from launch.ec2.requests import Cluster
from trainer.errors import SettingsError, TrainerError, did_you_mean
from trainer.settings import flags
from trainer.settings.hidden import without_secrets

Record = dict[str, Any]


def start_of(spec: Mapping[str, Any]) -> datetime | None:
    """When the job was started, by its job.json."""
    return datetime.fromtimestamp(spec["started"], UTC) if "started" in spec else None


def members_of(aws: Aws, folder: Folder) -> Record | None:
    """The cluster.json of `folder`, or None if there is none.  Raises AwsError."""
    return lookup.read_json(aws, folder.bucket, folder.cluster)


def exit_records(aws: Aws, folder: Folder) -> dict[str, Record]:
    """The nodes' exit records, by instance id."""
    return read_exits(aws, folder, aws.objects(folder.bucket, folder.exits))


def written_by_nodes(aws: Aws, folder: Folder) -> list[Any]:
    """The nodes' boot marks and exit records, as ListObjectsV2 describes them: one request for up to 30 nodes.

    In S3's order both come before the run folder, which may have any number of files.
    """
    found, query = list[Any](), {"Bucket": folder.bucket, "Prefix": folder.prefix, "MaxKeys": 200}
    while True:
        answer = aws.call("s3", "ListObjectsV2", query)
        found += answer.get("Contents", ())
        if not answer.get("IsTruncated") or found[-1]["Key"] > folder.spec:
            return [item for item in found if item["Key"].startswith((folder.boot, folder.exits))]
        query["ContinuationToken"] = answer["NextContinuationToken"]


def read_exits(aws: Aws, folder: Folder, listed: Sequence[Mapping[str, Any]]) -> dict[str, Record]:
    """The exit records among the `listed` objects, by instance id."""
    keys = [item["Key"] for item in listed if item["Key"].startswith(folder.exits)]
    found = [lookup.read_json(aws, folder.bucket, key) for key in keys]
    # The reason may be the last line of a user's script, with a token in it.  Keep it on one line: more lines would
    # look like the launcher's own output.
    records = [{**one, "reason": " ".join(without_secrets(one["reason"]).split())} for one in found if one]
    return {record["instance"]: record for record in records}


STOPPED = "Stopped"  # the toolkit's error code for a job that was stopped


def marker_of(folder: Folder, started: datetime) -> str:
    """The key of a start's stop marker.  It is in source/, where infra/iam lets launchers create new objects."""
    return f"{folder.prefix}source/stopped-{int(started.timestamp())}"


def put_marker(aws: Aws, folder: Folder, started: datetime) -> None:
    """Mark this start as stopped.  Idempotent.  Raises AwsError."""
    request = put_once(folder.bucket, marker_of(folder, started), b"", "mark the job as stopped")
    try:
        aws.call("s3", "PutObject", request.params)
    except AwsError as error:
        if error.aws_code != "PreconditionFailed":
            raise


def is_stopped(aws: Aws, folder: Folder, started: datetime) -> bool:
    """Whether a command has stopped this start.  Raises AwsError."""
    return aws.read(folder.bucket, marker_of(folder, started)) is not None


def check_not_stopped(aws: Aws, folder: Folder, started: datetime, *, has_started: bool = False) -> None:
    """Raises AwsError if this start was stopped, or if that cannot be determined.

    has_started: nodes are running; then an unreachable S3 is not an error.
    """
    stopped = False
    with suppress(*[TrainerError] if has_started else []):
        stopped = is_stopped(aws, folder, started)
    if stopped:
        raise AwsError(f"job {folder.job} was stopped by another command.", STOPPED)


def is_stopped_error(error: TrainerError) -> bool:
    """Whether the error means that the job was stopped, so that retrying is useless."""
    return isinstance(error, AwsError) and error.aws_code == STOPPED


def folder_of(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> Folder:
    """The job's folder: in `bucket` if given, else in the bucket of its tags, else in the toolkit's own."""
    known = bucket or fleet.buckets.get(job)
    if known is None:
        known = bucket_of(str(aws.call("sts", "GetCallerIdentity")["Account"]), aws.region)
    return Folder(known, job)


def jobs_in(aws: Aws, bucket: str) -> list[str]:
    """The jobs with a folder in `bucket`; empty if it cannot be listed."""
    query = {"Bucket": bucket, "Prefix": "jobs/", "Delimiter": "/"}
    try:
        folders: list[dict[str, Any]] = aws.pages("s3", "ListObjectsV2", "CommonPrefixes", query)
    except AwsError:
        return []
    return [folder["Prefix"].removeprefix("jobs/").rstrip("/") for folder in folders]


def is_known(aws: Aws, fleet: Fleet, folder: Folder) -> bool:
    """Whether such a job exists or existed.  Raises AwsError if that depends on its folder, which cannot be read."""
    own = fleet.of(folder.job)
    if own.nodes or own.resources or spec_of(aws, folder, BACKEND_NAME) is not None:
        return True
    return aws.read(folder.bucket, folder.queued) is not None


def known_folder(aws: Aws, fleet: Fleet, job: str, bucket: str | None) -> Folder:
    """The folder of `job`.  Raises SettingsError if the job never existed.  fleet: of all jobs."""
    folder = folder_of(aws, fleet, job, bucket)
    if not is_known(aws, fleet, folder):
        refuse_unknown(aws, fleet, folder)
    return folder


def refuse_unknown(aws: Aws, fleet: Fleet, folder: Folder) -> NoReturn:
    """Raise SettingsError with the nearest name.  fleet: of all jobs."""
    known = sorted({*fleet.jobs, *jobs_in(aws, folder.bucket)})
    raise SettingsError(
        f"no job {folder.job!r} in {aws.region}{did_you_mean(folder.job, known) or '.'} {running(fleet.jobs)} "
        "For other regions and buckets give --region and --bucket."
    )


def needed(job: str | None, verb: str, fleet: Fleet) -> str:
    """Return `job`.  Raises SettingsError, with the names of running jobs, if it is None."""
    if job is not None:
        return job
    raise SettingsError(f"no job given; use python -m launch.ec2 {verb} JOB.  {running(fleet.jobs)}")


def running(jobs: Collection[str]) -> str:
    """A sentence with the names of running jobs."""
    return f"Running: {', '.join(jobs)}." if jobs else "None is running."


def job_named(aws: Aws, fleet: Fleet, name: str | None, bucket: str | None) -> Job[Ec2Options]:
    """The running job called `name`.  Raises SettingsError if there is none.  fleet: of all jobs."""
    folder = folder_of(aws, fleet, needed(name, "attach", fleet), bucket)
    spec = spec_of(aws, folder, BACKEND_NAME)
    if spec is None:
        refuse_unknown(aws, fleet, folder)
    if "ended" in spec:
        raise SettingsError(f"job {folder.job} has ended; see {command('status', folder.job, aws.region)}")
    return job_of(spec)


def job_of(spec: Mapping[str, Any]) -> Job[Ec2Options]:
    """The job that job.json describes.  Raises SettingsError if it is incomplete or of an incompatible version."""
    if lacks := sorted({"job", "region", "train", "where"} - spec.keys()) or sorted({"nodes"} - spec["where"].keys()):
        raise SettingsError(f"job.json lacks {' and '.join(lacks)}, so no launcher wrote it.")
    own = {"job_name": spec["job"], "region": [spec["region"]], "max_nodes": spec["where"]["nodes"]}
    (where,) = flags.build({**spec["where"], **own}, [Ec2Options])
    # The nodes' own folders: users cannot set them.
    train = training_from(spec["train"]).at(run_dir=None)
    return Job(train, cast(Ec2Options, where))


ClusterFile = dict[str, Any]


def cluster_file(cluster: Cluster, fleet: Fleet, previous: Mapping[str, Any] | None) -> ClusterFile:
    """cluster.json for the living nodes of `fleet`.

    previous: the last one.  Its nodes keep their ranks, and so their log streams; new nodes fill the gaps.
    """
    known = {row["instance"] for row in (previous or {}).get("nodes", ())}
    # If there are too many nodes, prefer those that may be training already.
    chosen = sorted(fleet.living, key=lambda node: node.id not in known)[: cluster.nodes]
    rows = [
        {
            "rank": rank,
            "instance": node.id,
            "address": node.address,
            "data_volume": _volume(cluster, fleet, node),
        }
        for rank, node in ranks(chosen, previous)
    ]
    generation = max((node.generation for node in chosen), default=1)
    content = _content(cluster, generation, _restarts(cluster, generation, previous), rows)
    more = _taken_over(cluster, chosen, previous)
    return {**content, **more, "deadline": _deadline(cluster, chosen, previous)}


def _taken_over(cluster: Cluster, nodes: Sequence[Node], previous: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """The nodes that were warm nodes of another job; nothing without any.

    They have trained before: one that ends without a report is lost, rather than unable to start.
    """
    warm = [node.id for node in cluster.warm.fleet.living] if cluster.warm else (previous or {}).get("taken_over", ())
    found = [node.id for node in nodes if node.id in warm]
    return {"taken_over": found} if found else {}


def _deadline(cluster: Cluster, nodes: Sequence[Node], previous: Mapping[str, Any] | None) -> int:
    """The deadline.  The time limit begins with the first nodes, which a launch may have waited for."""
    if previous is not None and previous["started"] == int(cluster.started.timestamp()):
        return int(previous["deadline"])
    limit = timedelta(hours=cluster.resolved.options.max_hours)
    ends = [max(node.launched_at, cluster.started) + limit for node in nodes]
    return int(min([cluster.deadline - cluster.warm_time, *ends]).timestamp())


def planned_cluster_file(cluster: Cluster) -> ClusterFile:
    """cluster.json before any node exists, with placeholders in <>."""
    rows = []
    for rank in range(cluster.nodes):
        volume = None if cluster.resolved.data_volume == "none" else f"<its volume {rank}>"
        address = f"<address of node {rank}>"
        rows.append({"rank": rank, "instance": f"<node {rank}>", "address": address, "data_volume": volume})
    return _content(cluster, 1, 0, rows)


def ranks(nodes: Sequence[Node], previous: Mapping[str, Any] | None) -> list[tuple[int, Node]]:
    """The nodes with their ranks, in order of rank."""
    # A dict by rank: ranks must be unique.
    rows = {row["rank"]: row["instance"] for row in (previous or {}).get("nodes", ())}
    old = {name: rank for rank, name in rows.items()}
    kept = {node.id: old[node.id] for node in nodes if old.get(node.id, len(nodes)) < len(nodes)}
    free = iter(sorted(set(range(len(nodes))) - set(kept.values())))
    ranked = [(kept[node.id] if node.id in kept else next(free), node) for node in nodes]
    return sorted(ranked, key=lambda pair: pair[0])


def volumes_missing(cluster: Cluster, fleet: Fleet) -> bool:
    """Whether a node has no data volume yet; EC2 may list volumes later than nodes."""
    if cluster.resolved.data_volume == "none":
        return False
    return any(_volume(cluster, fleet, node) is None for node in fleet.living)


def _volume(cluster: Cluster, fleet: Fleet, node: Node) -> str | None:
    """The id of the node's data volume, or None."""
    if cluster.resolved.data_volume == "none":
        return None
    if cluster.resolved.data_volume == "multi-attach":
        candidates = fleet.shared_volumes
    else:
        candidates = tuple(volume for volume in fleet.kind("volume") if volume.device == DATA_DEVICE)
    return next((volume.id for volume in candidates if node.id in volume.attached_to), None)


def _restarts(cluster: Cluster, generation: int, previous: Mapping[str, Any] | None) -> int:
    """How often lost nodes were replaced in this start of the job."""
    if previous is None or previous["started"] != int(cluster.started.timestamp()):
        return 0
    return int(previous.get("restarts", 0)) + int(generation != previous.get("generation"))


def _content(cluster: Cluster, generation: int, restarts: int, rows: Sequence[Mapping[str, Any]]) -> ClusterFile:
    return {
        "job": cluster.job,
        "started": int(cluster.started.timestamp()),
        "deadline": int(cluster.deadline.timestamp()),
        "generation": generation,
        "restarts": restarts,
        "nodes": list(rows),
    }


def fetch_results(aws: Aws, folder: Folder, results: Path, choice: Choice) -> Results:
    """Copy the chosen results into the job's folder in `results`.  Raises AwsError, MachineError."""
    rest = command("fetch", folder.job, aws.region, "--all")
    return fetch_run(aws, folder, results / folder.job, choice, rest)


def fetch_results_at_end(aws: Aws, folder: Folder, results: Path, say: Say) -> None:
    """Copy the results of a job that is done, but its checkpoints.  A failure is a warning."""
    fetch = partial(fetch_results, aws, folder, results, without_checkpoints)
    fetch_at_end(fetch, say, command("fetch", folder.job, aws.region))
