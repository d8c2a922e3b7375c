"""The leak sweeper, which AWS runs on a schedule, from the document in account.yaml.

It ends only what has all of the toolkit's tags, for one is quickly copied: what a node's own timer and its job's time
limit have missed.  It deletes volumes that no node has, which neither of them knows.  It cannot import anything of the
toolkit.
"""

from datetime import UTC, datetime, timedelta

JOB_TAG, DEADLINE_TAG, TIME = "aws-ddp-toolkit:job", "aws-ddp-toolkit:deadline", "%Y-%m-%dT%H:%M:%SZ"
OTHER_TAGS = {"Name", "aws-ddp-toolkit:started", "aws-ddp-toolkit:bucket"}
GRACE = timedelta(minutes=15)  # for the timer and the time limit, and for a user who extends the deadline
ENDED = ("shutting-down", "terminated")


def sweep(events, context):
    """Ends what is past its deadline; {"ended": nodes, "deleted": volumes, "unreadable": ids}."""
    import boto3

    ec2, now = boto3.client("ec2"), datetime.now(UTC)
    reservations = found(ec2, "describe_instances", "Reservations")
    nodes = [node for reservation in reservations for node in reservation["Instances"]]
    late, unreadable = judge([node for node in nodes if node["State"]["Name"] not in ENDED], "InstanceId", now)
    free = {"Name": "status", "Values": ["available"]}
    unused, unclear = judge(found(ec2, "describe_volumes", "Volumes", free), "VolumeId", now)
    failures = []
    for name in late:
        attempt(failures, ec2.terminate_instances, InstanceIds=[name])
    for name in unused:
        attempt(failures, ec2.delete_volume, VolumeId=name)
    if failures:
        raise RuntimeError("; ".join(failures))  # shown in the automation's status
    return {"ended": late, "deleted": unused, "unreadable": unreadable + unclear}


def found(ec2, operation, key, *filters):
    """What carries both tags, and passes the other filters."""
    tagged = [{"Name": "tag-key", "Values": [JOB_TAG]}, {"Name": "tag-key", "Values": [DEADLINE_TAG]}]
    pages = ec2.get_paginator(operation).paginate(Filters=[*tagged, *filters])
    return [row for page in pages for row in page[key]]


def attempt(failures, call, **request):
    """Makes a request; one that fails, as for a protected node, must not keep the others."""
    try:
        call(**request)
    except Exception as error:
        failures.append(str(error))


def judge(things, key, now):
    """Ids of what is past its deadline, and of what has one that cannot be read.  key: of the id.  Pure."""
    late, unreadable = [], []
    for thing in things:
        tags = {tag["Key"]: tag["Value"] for tag in thing.get("Tags", ())}
        if JOB_TAG not in tags or not tags.keys() >= OTHER_TAGS:
            continue
        if tags["Name"] != f"aws-ddp-toolkit-{tags[JOB_TAG]}":
            continue
        try:
            deadline = datetime.strptime(tags[DEADLINE_TAG], TIME).replace(tzinfo=UTC)
        except (KeyError, ValueError):
            unreadable.append(thing[key])
            continue
        if now > deadline + GRACE:
            late.append(thing[key])
    return late, unreadable
