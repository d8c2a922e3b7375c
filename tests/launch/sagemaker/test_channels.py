"""--data: one place or several with names, each of a kind that SageMaker mounts."""

import pytest

from launch.sagemaker.channels import Channel, hold_images, located, read_channels
from trainer.errors import SettingsError

FS = "fs-0123456789abcdef0"


@pytest.mark.parametrize(
    ("words", "channels"),
    [
        ([], []),
        (["s3://bucket"], [Channel("data", "s3", "s3://bucket/")]),
        (["s3://bucket/a=b/c//"], [Channel("data", "s3", "s3://bucket/a=b/c/")]),
        (["data=s3://bucket/a"], [Channel("data", "s3", "s3://bucket/a/")]),
        (
            ["train=s3://bucket/a", "val=s3://other/b/"],
            [Channel("train", "s3", "s3://bucket/a/"), Channel("val", "s3", "s3://other/b/")],
        ),
        (
            ["data=s3://bucket/a", "weights=s3://bucket/w"],
            [Channel("data", "s3", "s3://bucket/a/"), Channel("weights", "s3", "s3://bucket/w/")],
        ),
        ([f"fsx://{FS}/fsx/imagenet/"], [Channel("data", "fsx", FS, "/fsx/imagenet")]),
        ([f"efs://{FS}"], [Channel("data", "efs", FS, "/")]),
        ([f"efs://{FS}/a"], [Channel("data", "efs", FS, "/a")]),
    ],
    ids=lambda value: ",".join(value) if value and isinstance(value[0], str) else "",
)  # fmt: skip
def test_places_become_channels(words: list[str], channels: list[Channel]) -> None:
    assert read_channels(tuple(words)) == tuple(channels)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["bucket/a"],
            "--data bucket/a: must be the name of a published data set, or look like s3://bucket/folder, fsx://",
        ),
        (["My_photos"], "--data My_photos: must be the name of a published data set"),
        (["s3://Bucket/a"], "--data s3://Bucket/a: must be the name"),
        (["s3:/bucket/a"], "must be the name"),
        (["train=/data"], "--data train=/data: must be the name"),
        (["fsx://0123/fsx"], "--data fsx://0123/fsx: must be the name"),
        ([f"fsx://{FS}"], "a path on FSx begins with the mount name, which aws fsx describe-file-systems shows"),
        ([f"fsx://{FS}/"], "a path on FSx begins with the mount name"),
        (["s3://bucket/a", "s3://bucket/b"], "--data takes one location, or several with names: --data train=s3://"),
        (["a=s3://bucket/a", "a=s3://bucket/b"], "--data takes one location, or several with names"),
    ],
)
def test_what_is_no_place_for_data_is_refused_with_what_is(words: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_channels(tuple(words))
    assert sentence in str(error.value)


@pytest.mark.parametrize("word", ["s3://bucket/a/", f"fsx://{FS}/fsx/a", f"efs://{FS}/a"])
def test_a_channel_names_its_place_as_it_was_given(word: str) -> None:
    assert read_channels((word,))[0].uri == word


@pytest.mark.parametrize(
    ("names", "enough"),
    [((), False), (("data",), True), (("train", "val"), True), (("train", "test"), True),
     (("train", "validation"), True), (("train",), False), (("train", "vla"), False),
     (("weights",), False), (("data", "weights"), True)],
)  # fmt: skip
def test_images_lie_in_one_folder_or_in_two(names: tuple[str, ...], enough: bool) -> None:
    assert hold_images(tuple(Channel(name, "s3", "s3://bucket/") for name in names)) is enough


def test_a_published_data_set_is_in_the_accounts_bucket() -> None:
    channels = read_channels(("train=s3://bucket/train", "weights=s3://bucket/weights"))
    assert located(channels, "111122223333", "eu-west-1") == channels

    (channel,) = located(read_channels(("photos",)), "111122223333", "eu-west-1")
    assert (channel.name, channel.uri) == ("data", "s3://aws-ddp-toolkit-111122223333-eu-west-1/data/photos/")
