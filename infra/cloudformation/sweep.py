"""The sweeper, which AWS runs on a schedule and at each job's time limit, from the document in account.yaml.

It terminates instances that outlived their deadline tag, in case a node's own timer failed, and deletes unattached
volumes past theirs.  It requires all of the toolkit's tags, as a single one is easily copied to other resources.  It
cannot import anything of the toolkit.
"""

from datetime import UTC, datetime, timedelta

JOB_TAG, DEADLINE_TAG, TIME = "aws-ddp-toolkit:job", "aws-ddp-toolkit:deadline", "%Y-%m-%dT%H:%M:%SZ"
OTHER_TAGS = {"Name", "aws-ddp-toolkit:started", "aws-ddp-toolkit:bucket"}
ENDED = ("shutting-down", "terminated")


def sweep(events, context):
    """Remove what is past its deadline.  Return {"ended": nodes, "deleted": volumes, "unreadable": ids}.

    events: grace_minutes after the deadline, by default 15, which gives the node's timer time to act; a time limit
    passes 0.  Never less: a caller must not be able to remove anything before its deadline.
    """
    import boto3

    grace = timedelta(minutes=max(0, int(events.get("grace_minutes", 15))))
    ec2, now = boto3.client("ec2"), datetime.now(UTC) - grace
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
    """Resources that have both tags and match the other filters."""
    tagged = [{"Name": "tag-key", "Values": [JOB_TAG]}, {"Name": "tag-key", "Values": [DEADLINE_TAG]}]
    pages = ec2.get_paginator(operation).paginate(Filters=[*tagged, *filters])
    return [row for page in pages for row in page[key]]


def attempt(failures, call, **request):
    """Make a request.  Record a failure, such as for a protected node, without stopping the others."""
    try:
        call(**request)
    except Exception as error:
        failures.append(str(error))


def judge(things, key, now):
    """IDs of resources past their deadline at `now`, and of those with an invalid deadline.  key: name of the ID."""
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
        if now > deadline:
            late.append(thing[key])
    return late, unreadable
