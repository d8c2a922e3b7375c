"""The leak sweeper, which AWS runs on a schedule, from the document in account.yaml.

It ends what a node's own timer and its job's time limit have missed.  It cannot import anything of the toolkit.
"""

from datetime import UTC, datetime, timedelta

JOB_TAG, DEADLINE_TAG, TIME = "aws-ddp-toolkit:job", "aws-ddp-toolkit:deadline", "%Y-%m-%dT%H:%M:%SZ"
GRACE = timedelta(minutes=15)  # for the timer and the time limit, and for a user who extends the deadline
ENDED = ("shutting-down", "terminated")


def sweep(events, context):
    """Ends every node of the toolkit that is past its deadline; {"ended": ids, "unreadable": ids}."""
    import boto3

    ec2 = boto3.client("ec2")
    filters = [{"Name": "tag-key", "Values": [JOB_TAG]}, {"Name": "tag-key", "Values": [DEADLINE_TAG]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    nodes = [node for page in pages for reservation in page["Reservations"] for node in reservation["Instances"]]
    late, unreadable = judge(nodes, datetime.now(UTC))
    failures = []
    for node in late:
        try:
            ec2.terminate_instances(InstanceIds=[node])
        except Exception as error:  # a protected node must not keep the others
            failures.append(str(error))
    if failures:
        raise RuntimeError("; ".join(failures))  # shown in the automation's status
    return {"ended": late, "unreadable": unreadable}


def judge(nodes, now):
    """Ids of nodes past their deadline, and of nodes whose deadline cannot be read.  Pure."""
    late, unreadable = [], []
    for node in nodes:
        tags = {tag["Key"]: tag["Value"] for tag in node.get("Tags", ())}
        if node["State"]["Name"] in ENDED or JOB_TAG not in tags:
            continue
        try:
            deadline = datetime.strptime(tags[DEADLINE_TAG], TIME).replace(tzinfo=UTC)
        except (KeyError, ValueError):
            unreadable.append(node["InstanceId"])
            continue
        if now > deadline + GRACE:
            late.append(node["InstanceId"])
    return late, unreadable
