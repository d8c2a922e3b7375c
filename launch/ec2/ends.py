"""When nodes ended, where EC2 does not say.  Reads only.

EC2 gives the time of an end by the API's user or by AWS itself; of a node that shut itself down it says "User
initiated" alone.  Without a time such a node would seem to cost money until EC2 forgets it.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from launch.core.aws import Aws
from launch.core.errors import AwsError
from launch.core.names import Folder
from launch.ec2.costs import BILLED
from launch.ec2.fleet import Fleet, Node
from launch.ec2.names import BACKEND_NAME
from launch.ec2.outcome import Record
from launch.ec2.watch import exit_records
from launch.ec2.written import spec_of
from trainer.errors import SettingsError


def find_ends(aws: Aws, folder: Folder, fleet: Fleet) -> Fleet:
    """`fleet` with its nodes' ends from their exit records and job.json; as it is if S3 does not answer.

    Or if job.json names another backend: any launcher may write it, and no stop may fail because of it.
    """
    if not any(_is_open(node) for node in fleet.nodes if node.job == folder.job):
        return fleet
    try:
        return with_ends(fleet, folder.job, exit_records(aws, folder), spec_of(aws, folder, BACKEND_NAME))
    except (AwsError, SettingsError):
        return fleet


def with_ends(fleet: Fleet, job: str, exits: Mapping[str, Record], spec: Mapping[str, Any] | None) -> Fleet:
    """`fleet` with its nodes' ends, from files that were read.  Pure."""
    ended = (spec or {}).get("ended")

    def known(node: Node) -> Node:
        if node.job != job or not _is_open(node):
            return node
        at = exits.get(node.id, {}).get("at", ended)
        return node if at is None else replace(node, ended_at=datetime.fromtimestamp(at, UTC))

    return replace(fleet, nodes=tuple(map(known, fleet.nodes)))


def _is_open(node: Node) -> bool:
    return node.state not in BILLED and node.ended_at is None
