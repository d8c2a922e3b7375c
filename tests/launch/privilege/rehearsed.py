"""The requests in a rehearsal's requests.jsonl, and the policies that must grant them: the launcher's, and those of
nodes or of SageMaker's containers.
"""

import json
from pathlib import Path
from typing import Any

from launch.rehearse.aws.iam.needs import AccountView, needs
from launch.rehearse.aws.iam.policies import Need, actions, allows, policy
from tests.launch.faults import Request

SECRET = {"ssm": {"Name": "/ddp-toolkit/wandb"}, "secretsmanager": {"SecretId": "ddp-toolkit/wandb"}}
LOG_GROUP = "/aws-ddp-toolkit/ec2"
ANYWHERE = AccountView("123456789012", "us-east-1", lambda _name: {}, lambda _profile: [])


def ungranted(file: Path) -> set[str]:
    """What they needed and no policy grants: of the launcher's by actions, of the others' by resources, too."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    role = "sagemaker" if any(row["operation"] == "CreateTrainingJob" for row in rows) else "node"
    launchers = actions("launcher")
    if any(row["operation"] == "StartSnapshot" for row in rows):  # who publishes has the policy for that, too
        launchers |= actions("data")
    launcher = {need.action for row in rows if row["by_launcher"] for need in [_action(row)]} - launchers
    return launcher | {str(need) for need in needs_of_nodes(file) if not allows([policy(role)], need)}


def needs_of_nodes(file: Path) -> list[Need]:
    """What nodes, their docker and AWS's command line on them asked for."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    calls = [_call(row) for row in rows if not row["by_launcher"]]
    return [need for call in calls for need in needs(call, ANYWHERE)]


def _action(row: dict[str, Any]) -> Need:
    """Of the launcher's parameters the file has only paths."""
    service, operation = row["service"], row["operation"]
    if service == "s3":
        return needs(_call(row), ANYWHERE)[0]
    return Need(f"{service}:{operation}")


def _call(row: dict[str, Any]) -> Request:
    bucket, _, key = row["path"].strip("/").partition("/")
    params: dict[str, Any] = {}
    if row["service"] == "s3":
        # Queries are not noted; boot.sh lists run folders only.
        params = {"Bucket": bucket, "Key": key} if key else {"Bucket": bucket, "Prefix": "jobs/job/run/"}
    if row["service"] in SECRET:  # nor are parameters
        params = SECRET[row["service"]]
    if row["service"] == "logs":
        params = {"logGroupName": LOG_GROUP, "logStreamName": "job/node-0"}
    return Request(row["service"], row["operation"], params)
