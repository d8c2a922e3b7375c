"""Where the nodes' containers log; launch/core/logs.py reads it."""

from launch.core.logs import Streams
from launch.ec2.names import LOG_GROUP


def streams_of(job: str) -> Streams:
    """The nodes' streams in CloudWatch; the number of each is its node's rank."""
    return Streams(LOG_GROUP, f"{job}/node-")
