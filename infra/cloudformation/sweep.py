"""The leak sweeper, which AWS runs on a schedule and at each job's time limit, from the document in account.yaml.

It ends only what has all of the toolkit's tags, for one is quickly copied, and is past its own deadline: what a node's
own timer has missed.  So whoever makes a time limit can end nobody else's nodes with it.  It deletes volumes that no
node has.  It cannot import anything of the toolkit.
"""

from datetime import UTC, datetime, timedelta

JOB_TAG, DEADLINE_TAG, TIME = "aws-ddp-toolkit:job", "aws-ddp-toolkit:deadline", "%Y-%m-%dT%H:%M:%SZ"
OTHER_TAGS = {"Name", "aws-ddp-toolkit:started", "aws-ddp-toolkit:bucket"}
ENDED = ("shutting-down", "terminated")


def sweep(events, context):
    """Ends what is past its deadline; {"ended": nodes, "deleted": volumes, "unreadable": ids}.

    events: how long past it.  By default 15 minutes, for the timer and the time limit, which passes 0.  Never less: the
    document allows nothing else, and whoever starts it must not choose the time.
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
    """Ids of what was past its deadline then, and of what has one that cannot be read.  key: of the id.  Pure."""
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
