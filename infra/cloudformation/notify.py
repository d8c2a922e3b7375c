"""The notifier, which AWS runs every five minutes from the function in notify.yaml.

It sends one message when a job ends, when nothing has been logged for an hour, and when half of the time limit is
spent.  It asks EC2, SageMaker and Batch, so no launcher has to run.  What it has sent is in notify.json in the bucket;
a message that could not be sent is sent at the next look, which Lambda brings forward after a failure:
https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html.  It cannot import the toolkit.
"""

import functools
import json
import os
import urllib.request
from datetime import UTC, datetime, timedelta

TAGS, TIME = "aws-ddp-toolkit:", "%Y-%m-%dT%H:%M:%SZ"
MEMORY = "notify.json"
SILENCE = timedelta(hours=1)  # without a line in the log
SETTLED = timedelta(minutes=10)  # without machines: a launcher may replace them
# So long EC2 shows terminated instances, usually:
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html
RECENT = timedelta(hours=1)
FORGOTTEN = timedelta(hours=3)  # since the end: longer than RECENT
LONGEST = timedelta(days=60)  # a training job, as training_jobs.py has it
NOT_OVER = ("InProgress", "Stopping")
STATES = {"Completed": "done", "Failed": "failed", "Stopped": "stopped"}


def notify(event, context):
    """Look at all jobs of the region, and send what is new."""
    import boto3

    make, now = functools.cache(boto3.client), datetime.now(UTC)
    s3, bucket = make("s3"), os.environ["BUCKET"]
    text = read(s3, bucket, MEMORY)
    known = None if text is None else json.loads(text)
    found, failures = look_up(make, now)
    found += lost(known or {}, found, is_complete=not failures)
    for job in found:
        if job["bucket"] and "ended" not in job.get("sent", ()):
            attempt(failures, job["name"], add_end, s3, job)
    jobs = merge(known, found)
    for key, job in jobs.items():
        attempt(failures, key, add_silence, make, job, now)
    news = decide(jobs, now)
    saved = save(s3, bucket, kept(jobs, now), known)
    for key, kind in news:
        if attempt(failures, f"{key}, {kind}", send, make, jobs[key], kind, now):
            jobs[key]["sent"] = [*jobs[key]["sent"], kind]
            saved = save(s3, bucket, kept(jobs, now), saved)  # at once: Lambda may end this run
    if failures:
        raise RuntimeError("; ".join(failures))  # in the function's log
    return {"sent": news}


def attempt(failures, what, call, *given):
    """Whether call(*given) succeeded.  A failure is recorded without its text, which may have the webhook's address."""
    try:
        call(*given)
    except Exception as error:
        answer = getattr(error, "response", {}).get("Error", {})
        failures.append(f"{what}: {type(error).__name__} {answer.get('Code', getattr(error, 'code', ''))}".strip())
        return False
    return True


# ---- what is new: pure


def lost(known, found, is_complete):
    """The jobs of the last look that were not found.  They have gone, if all look-ups succeeded."""
    keys = joined(found)
    gone = {"live": False, "lost": True} if is_complete else {}
    return [{**old, **gone} for key, old in known.items() if key not in keys]


def merge(known, found):
    """{key: job}, with what was sent.  known: the jobs of the last look, None at the first one."""
    is_first, known, jobs = known is None, known or {}, joined(found)
    for key, job in jobs.items():
        old = known.get(key) or {"gone": None, "sent": ["ended"] if is_first and not job["live"] else []}
        starts = {job["started"], old.get("started")} - {None}
        if job["live"] and ("ended" in old["sent"] or len(starts) > 1):
            old = {"sent": []}
        # Of the machines at one time: a replaced one costs nothing any more.
        usd = max(job["usd"], old.get("usd", 0))
        job |= {"sent": old["sent"], "gone": None if job["live"] else old["gone"], "usd": usd}
    return jobs


def joined(found):
    """{key: job}, where a launcher in a queue and its nodes are one job."""
    jobs = {}
    for job in found:
        other = jobs.get(f"{job['backend']} {job['name']}", job)
        both = {name: job[name] or other[name] for name in ("live", "final", "state", "reason", "ended")}
        jobs[f"{job['backend']} {job['name']}"] = {**job, **both}
    return jobs


def decide(jobs, now):
    """The (key, kind) of the messages to send: ended, stuck or half."""
    news = []
    for key, job in jobs.items():
        if job["live"]:
            kinds = [kind for kind, holds in (("half", is_half(job, now)), ("stuck", job.get("silent"))) if holds]
        else:
            job["gone"] = job["gone"] or now.strftime(TIME)
            kinds = ["ended"] if job["final"] or now - time_of(job["gone"]) >= SETTLED else []
        news += [(key, kind) for kind in kinds if kind not in job["sent"]]
    return news


def is_half(job, now):
    """Whether half of the time limit is spent."""
    if not job["started"] or not job["deadline"]:
        return False
    started = time_of(job["started"])
    return now - started >= (time_of(job["deadline"]) - started) / 2


def kept(jobs, now):
    """The jobs to remember."""
    ended = {key: job for key, job in jobs.items() if job["lost"] and "ended" in job["sent"]}
    old = [key for key, job in ended.items() if now - time_of(job["gone"]) > FORGOTTEN]
    return {key: {**job, "silent": False} for key, job in jobs.items() if key not in old}


def message(job, kind, now, region):
    """The subject and the text."""
    what = {
        "half": "has spent half of its time limit",
        "stuck": "has logged nothing for an hour: it may be stuck",
        "ended": f"has ended: {job['state'] or 'no machine of it runs'}",
    }[kind]
    code = f", exit code {job['code']}" if kind == "ended" and job["code"] is not None else ""
    lines = [
        f"job {job['name']} (launch.{job['backend']}, {region}) {what}{code}",
        (job["reason"] or "")[:500] if kind == "ended" else "",
        so_far(job, kind, now),
        f"its time limit is {job['deadline']}" if kind == "half" else "",
        f"python -m launch.{job['backend']} status {job['job']} --region {region}",
    ]
    return f"{job['name']} {what}"[:99], "\n".join(line for line in lines if line)


def so_far(job, kind, now):
    """How long it has run, and what that costs."""
    if not job["started"]:
        return ""
    end = time_of(job["ended"] or job["gone"]) if kind == "ended" else now
    hours = max(0, (end - time_of(job["started"])).total_seconds() / 3600)
    usd = f", about {hours * job['usd']:.2f} USD on demand" if job["usd"] else ""
    return f"it {'ran' if kind == 'ended' else 'has run for'} {hours:.1f} hours{usd}"


def time_of(text):
    return datetime.strptime(text, TIME).replace(tzinfo=UTC)


def a_job(backend, job, live, **known):
    """A job as the last look remembers it.  final: whether its end is certain; usd: of an hour, of all machines."""
    row = {"backend": backend, "job": job, "name": job, "live": live, "lost": False, "final": False}
    unknown = ("started", "deadline", "ended", "state", "code", "reason", "bucket", "log")
    return {**row, "ids": [], "usd": 0, **dict.fromkeys(unknown), **known}


def checked(text):
    """The time in a tag, which anybody may have edited.  Raises ValueError."""
    return time_of(text).strftime(TIME) if text else None


def to_text(time):
    return time.astimezone(UTC).strftime(TIME) if time else None


# ---- the jobs that are there


def look_up(make, now):
    """The jobs, and the failures.  What cannot be read keeps no other job's messages back."""
    readers, found, failures = [], [], []
    for look in (in_queues, on_ec2, on_sagemaker):
        attempt(failures, look.__name__, lambda look=look: readers.extend(look(make, now)))
    for name, reader in readers:
        attempt(failures, name, lambda reader=reader: found.append(reader()))
    return [job for job in found if job], failures


def rows(client, operation, key, **query):
    """The rows of all pages."""
    return [row for page in client.get_paginator(operation).paginate(**query) for row in page[key]]


def on_ec2(make, now):
    """The jobs with instances, which have all of the toolkit's tags: the newest start of each."""
    tagged = [{"Name": "tag-key", "Values": [f"{TAGS}job"]}, {"Name": "tag-key", "Values": [f"{TAGS}started"]}]
    jobs = {}
    for reservation in rows(make("ec2"), "describe_instances", "Reservations", Filters=tagged):
        for node in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in node["Tags"]}
            if tags.get("Name") == f"aws-ddp-toolkit-{tags[f'{TAGS}job']}":
                jobs.setdefault((tags[f"{TAGS}job"], tags[f"{TAGS}started"]), []).append((node, tags))
    return {job: (job, functools.partial(ec2_job, job, *jobs[job, start])) for job, start in sorted(jobs)}.values()


def ec2_job(job, *nodes):
    tags = nodes[0][1]
    live = [tags for node, tags in nodes if node["State"]["Name"] not in ("shutting-down", "terminated")]
    return a_job(
        "ec2", job, bool(live), started=checked(tags[f"{TAGS}started"]), deadline=checked(tags.get(f"{TAGS}deadline")),
        bucket=tags.get(f"{TAGS}bucket"), ids=[node["InstanceId"] for node, _ in nodes],
        usd=sum(float(tags.get(f"{TAGS}usd-per-hour", 0)) for tags in live),
        log=["/aws-ddp-toolkit/ec2", f"{job}/node-"],
    )  # fmt: skip


def on_sagemaker(make, now):
    """The training jobs that run or have just ended.  Those of a queue are found through it."""
    names = {}
    for query in ({"StatusEquals": "InProgress"}, {"LastModifiedTimeAfter": now - RECENT}):
        query["CreationTimeAfter"] = now - LONGEST
        found = rows(make("sagemaker"), "list_training_jobs", "TrainingJobSummaries", **query)
        names |= dict.fromkeys(row["TrainingJobName"] for row in found)
    return [(name, functools.partial(direct, make, name, now)) for name in names if not name.startswith("AWSBatch")]


def direct(make, name, now):
    """A training job that is in no queue; None for one of somebody else."""
    found = make("sagemaker").describe_training_job(TrainingJobName=name)
    tags = rows(make("sagemaker"), "list_tags", "Tags", ResourceArn=found["TrainingJobArn"])
    tags = {tag["Key"]: tag["Value"] for tag in tags}
    # The end of its warm pool may modify it, long after its own.
    is_new = found.get("TrainingEndTime", now) > now - FORGOTTEN
    return training_job(found, tags) if f"{TAGS}job" in tags and is_new else None


def training_job(found, tags):
    """A job, by DescribeTrainingJob."""
    name, status, begun = found["TrainingJobName"], found["TrainingJobStatus"], found.get("TrainingStartTime")
    limit = found.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    machines, over = found.get("ResourceConfig", {}).get("InstanceCount", 1), status not in NOT_OVER
    return a_job(
        "sagemaker", tags[f"{TAGS}job"], not over, name=name, started=to_text(begun), final=over,
        deadline=to_text(begun + timedelta(seconds=limit)) if begun and limit else None,
        ended=to_text(found.get("TrainingEndTime")), state=STATES.get(status),
        reason=" ".join(found.get("FailureReason", "").split()),
        usd=machines * float(tags.get(f"{TAGS}usd-per-hour", 0)), log=["/aws/sagemaker/TrainingJobs", f"{name}/"],
    )  # fmt: skip


def in_queues(make, now):
    """The jobs in the toolkit's queues that wait, run or have just ended.

    https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html
    """
    batch = make("batch")
    after = [{"name": "AFTER_CREATED_AT", "values": [str(int((now - LONGEST).timestamp() * 1000))]}]
    for queue in rows(batch, "describe_job_queues", "jobQueues"):
        name, is_sagemakers = queue["jobQueueName"], queue.get("jobQueueType") == "SAGEMAKER_TRAINING"
        if not name.startswith("aws-ddp-toolkit-"):
            continue
        listing = "list_service_jobs" if is_sagemakers else "list_jobs"
        found = rows(batch, listing, "jobSummaryList", jobQueue=name, filters=after)
        for row in {row["jobName"]: row for row in sorted(found, key=lambda row: row["createdAt"])}.values():
            over = row["status"] in ("SUCCEEDED", "FAILED")
            if not over or row.get("stoppedAt", 0) / 1000 > (now - RECENT).timestamp():
                reader = functools.partial(service_job, make) if is_sagemakers else launcher
                yield row["jobName"], functools.partial(reader, row, over)


def launcher(row, over):
    """A job of launch.ec2 --queue, of which only the launcher is in the queue."""
    state = {"SUCCEEDED": "done", "FAILED": "failed"}.get(row["status"])
    return a_job("ec2", row["jobName"], not over, final=over, state=state, reason=row.get("statusReason"),
                 ended=to_text(datetime.fromtimestamp(row["stoppedAt"] / 1000, UTC)) if over else None)  # fmt: skip


def service_job(make, row, over):
    """A job of launch.sagemaker --queue, by its newest training job.

    https://docs.aws.amazon.com/batch/latest/APIReference/API_DescribeServiceJob.html
    """
    answer = make("batch").describe_service_job(jobId=row["jobId"])
    tags, state = {f"{TAGS}job": row["jobName"], **answer.get("tags", {})}, {"SUCCEEDED": "done", "FAILED": "failed"}
    arn = answer.get("latestAttempt", {}).get("serviceResourceId", {}).get("value")
    job = a_job("sagemaker", tags[f"{TAGS}job"], not over, reason=row.get("statusReason"))
    if arn:
        found = make("sagemaker").describe_training_job(TrainingJobName=arn.rpartition("/")[2])
        job = training_job(found, tags)
    return {**job, "name": row["jobName"], "live": not over, "final": over, "state": state.get(row["status"])}


# ---- reading and sending


def add_silence(make, job, now):
    """Add whether a job that runs has logged nothing for long."""
    if job["live"] and job["log"] and job["started"] and now - time_of(job["started"]) >= SILENCE:
        job["silent"] = "stuck" not in job["sent"] and not has_lines(make("logs"), *job["log"], now - SILENCE)


def add_end(s3, job):
    """Add how a job on EC2 has ended.

    By outcome.json, which only launchers write, even if its nodes stay for the next job; or by the nodes' own records
    once they have gone.
    """

    def get(file):
        return json.loads(read(s3, job["bucket"], f"jobs/{job['job']}/{file}", "AccessDenied", "NoSuchBucket") or "{}")

    outcome = get("outcome.json")
    if outcome.get("ended", "") > (job["started"] or ""):
        job |= {"live": False, "final": True, "state": outcome["state"], "code": outcome["exit_code"],
                "reason": outcome["reason"], "ended": checked(outcome["ended"])}  # fmt: skip
    elif not job["live"]:
        job |= by_records([get(f"exits/{node}.json") for node in job["ids"]])


def by_records(records):
    """How the job ended, as far as its nodes know.  One that AWS reclaimed or a user ended has not failed."""
    failed = [one for one in records if one.get("code") and one["step"] not in ("spot", "signal")]
    for record in failed or [one for one in records if one.get("code") == 0]:
        return {"state": "failed" if failed else "done", "code": record["code"], "reason": record["reason"]}
    return {}


def read(s3, bucket, key, *also_absent):
    """The text of an object; None if there is none, or if it is in a bucket that may not be read."""
    from botocore.exceptions import ClientError

    try:
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("NoSuchKey", *also_absent):
            raise
        return None


def has_lines(logs, group, prefix, since):
    """Whether anything was logged since.

    https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_FilterLogEvents.html: pages may be empty.
    """
    query = {"logGroupName": group, "logStreamNamePrefix": prefix, "limit": 1}
    pages = logs.get_paginator("filter_log_events").paginate(startTime=int(since.timestamp() * 1000), **query)
    try:
        return any(page["events"] for page in pages)
    except logs.exceptions.ResourceNotFoundException:
        return False


def save(s3, bucket, jobs, saved):
    if jobs != saved:
        s3.put_object(Bucket=bucket, Key=MEMORY, Body=json.dumps(jobs).encode())
    return jobs


def send(make, job, kind, now):
    """By mail, through the topic, or to the webhook, whose address is in a parameter of Systems Manager.

    https://docs.aws.amazon.com/sns/latest/api/API_Publish.html: a subject has less than 100 characters of ASCII.
    """
    subject, text = message(job, kind, now, os.environ["AWS_REGION"])
    if topic := os.environ.get("TOPIC"):
        make("sns").publish(TopicArn=topic, Subject=subject, Message=text)
    if hook := os.environ.get("HOOK"):
        address = make("ssm").get_parameter(Name=hook, WithDecryption=True)["Parameter"]["Value"].strip()
        body, kind = json.dumps({"text": text}).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(address, body, kind)  # noqa: S310
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310  # the administrator's own address
