"""The leak sweeper: AWS runs it as often as the stack says, from the document in account.yaml, whoever else is still
there.

A node's own timer and its job's time limit come first; this is for what they missed.  It stands alone: nothing of the
toolkit can be imported there.
"""

from datetime import UTC, datetime, timedelta

JOB_TAG, DEADLINE_TAG, TIME = "aws-ddp-toolkit:job", "aws-ddp-toolkit:deadline", "%Y-%m-%dT%H:%M:%SZ"
GRACE = timedelta(minutes=15)  # for the two that come first, and for who attaches with more time
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
        except Exception as error:  # one that is protected must not save the others
            failures.append(str(error))
    if failures:
        raise RuntimeError("; ".join(failures))  # shows in the automation's status
    return {"ended": late, "unreadable": unreadable}


def judge(nodes, now):
    """The ids of those past their deadline, and of those whose deadline cannot be read.  Pure."""
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
