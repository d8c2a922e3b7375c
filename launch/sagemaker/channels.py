"""Data channels, which SageMaker mounts at /opt/ml/input/data/NAME in the container.  Pure."""

import re
from dataclasses import dataclass, replace

from launch.aws.names import bucket_of, parse_s3
from launch.aws.published import NAME, prefix_of
from trainer.datasets.tree import EVALUATION
from trainer.errors import SettingsError

# The channel of a whole data set, with train/ and val/ in it; trainer.sagemaker uses the same name.
WHOLE = "data"

SOME_BUCKET = bucket_of("account", "region")  # holds published data sets, until it is known

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64})=(?P<uri>(s3|fsx|efs)://.*)")
_FILE_SYSTEM = re.compile(r"(?P<kind>fsx|efs)://(?P<id>fs-[0-9a-f]{8,})(?P<path>/.*)?")
# SageMaker's names for them.
FILE_SYSTEMS = {"fsx": "FSxLustre", "efs": "EFS"}


@dataclass(frozen=True)
class Channel:
    """A data channel."""

    name: str
    kind: str  # s3, fsx or efs
    place: str  # s3://bucket/folder, or a file system's id
    path: str = ""  # the folder in a file system

    @property
    def uri(self) -> str:
        return self.place if self.kind == "s3" else f"{self.kind}://{self.place}{self.path}"


def read_channels(words: tuple[str, ...]) -> tuple[Channel, ...]:
    """The channels of --data: one place, or NAME=PLACE,NAME=PLACE.  Raises SettingsError."""
    channels = tuple(map(_channel, words))
    names = {channel.name for channel in channels}
    if len(names) < len(channels):
        raise SettingsError(
            "--data takes one location, or several with names: --data train=s3://BUCKET/train,val=s3://BUCKET/val."
        )
    return channels


def located(channels: tuple[Channel, ...], account: str, region: str) -> tuple[Channel, ...]:
    """The channels, with data sets that launch.data has published in the account's bucket."""
    bucket = f"s3://{bucket_of(account, region)}/"
    return tuple(replace(channel, place=channel.place.replace(f"s3://{SOME_BUCKET}/", bucket)) for channel in channels)


def hold_images(channels: tuple[Channel, ...]) -> bool:
    """Whether the channels hold image folders for training and evaluation."""
    names = {channel.name for channel in channels}
    return WHOLE in names or ("train" in names and not names.isdisjoint(EVALUATION))


def whole_in_s3(channels: tuple[Channel, ...]) -> str | None:
    """The S3 location of the channel of a whole data set; None without one."""
    return next((channel.place for channel in channels if (channel.name, channel.kind) == (WHOLE, "s3")), None)


def _channel(word: str) -> Channel:
    named = _NAMED.fullmatch(word)
    name, uri = (named["name"], named["uri"]) if named else (WHOLE, word)
    if parse_s3(uri):
        # SageMaker takes a key prefix: without the slash it would also copy FOLDER-old/.
        return Channel(name, "s3", uri.rstrip("/") + "/")
    if re.fullmatch(NAME, uri):
        return Channel(name, "s3", f"s3://{SOME_BUCKET}/{prefix_of(uri)}")
    system = _FILE_SYSTEM.fullmatch(uri)
    if system is None:
        raise SettingsError(
            f"--data {uri}: must be the name of a published data set, or look like s3://bucket/folder, "
            "fsx://fs-0123456789abcdef0/mount/folder or efs://fs-0123456789abcdef0/folder."
        )
    path = (system["path"] or "/").rstrip("/") or "/"
    if system["kind"] == "fsx" and path == "/":
        raise SettingsError(
            f"--data {uri}: a path on FSx begins with the mount name, which aws fsx describe-file-systems "
            "shows; for example fsx://fs-0123456789abcdef0/fsx/imagenet."
        )
    return Channel(name, system["kind"], system["id"], path)
