"""A region for the nodes of a job, and a data set for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.launch.ec2.boot.job import BUCKET, LOG_GROUP
from tests.launch.ec2.nodes import Region, Volume, region


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Region]:
    """A region with a bucket and a log group in it."""
    with region(tmp_path / "region") as made:
        made.client("s3").create_bucket(Bucket=BUCKET)
        made.client("logs").create_log_group(logGroupName=LOG_GROUP)
        yield made


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    """A volume with scans of handwritten zeros and ones, as PNG files of 16 pixels a side."""
    from sklearn.datasets import load_digits  # and with it pandas, for seconds

    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    for digit in (0, 1):
        for index, pixels in enumerate(data.images[data.target == digit][:60]):
            file = folder / "data" / ("val" if index % 5 == 0 else "train") / str(digit) / f"{index:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15).astype("uint8")).resize((16, 16)).convert("RGB").save(file)
    return Volume.of(folder / "data", "vol-0123456789abcdef0", folder / "volume.img")
