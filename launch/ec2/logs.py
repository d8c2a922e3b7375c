"""Where the nodes' containers write what they say; launch/logs.py reads it."""

from launch.ec2.names import LOG_GROUP, node_streams
from launch.logs import Streams


def streams_of(job: str) -> Streams:
    """The nodes' streams in CloudWatch; the number of each is its node's rank."""
    return Streams(LOG_GROUP, node_streams(job))
