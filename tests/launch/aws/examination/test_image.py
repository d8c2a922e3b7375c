"""What an image says of itself."""

from types import SimpleNamespace
from typing import Any

import pytest

from launch.aws.examination import image
from launch.core import catalog
from launch.core.errors import AwsError


@pytest.mark.parametrize(
    ("config", "platform", "cuda"),
    [
        ({"os": "linux", "architecture": "amd64", "config": {"Env": ["CUDA_VERSION=12.9.1"]}}, "linux/amd64", (12, 9)),
        (
            {"architecture": "arm64", "config": {"Labels": {
                "org.opencontainers.image.base.name": "x/pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04-sagemaker"
            }}},
            "linux/arm64", (13, 0),
        ),
        (
            {"os": "linux", "architecture": "amd64", "config": {"Labels": {
                "org.opencontainers.image.base.name": "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"
            }}},
            "linux/amd64", (13, 0),
        ),
        ({"os": "linux", "architecture": "amd64", "config": None}, "linux/amd64", None),
    ],
)  # fmt: skip
def test_an_image_says_its_platform_and_cuda(config: dict[str, object], platform: str, cuda: object) -> None:
    content = image.content_of(config)
    assert (content.platform, content.cuda) == (platform, cuda)


@pytest.mark.parametrize(
    "config",
    ["[]", '{"config": {"Env": [1]}}', '{"config": {"Labels": "x"}}', "[" * 100_000],
    ids=lambda config: config[:20],
)
def test_a_damaged_image_description_is_one_clear_error(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ECR checks an image's manifest, and not what it says of itself."""
    manifest = {"imageManifest": '{"config": {"digest": "sha256:0"}}'}
    monkeypatch.setattr(image, "image_at", lambda *_: manifest)
    aws = SimpleNamespace(call=lambda *_: {"downloadUrl": "https://layer"})
    case: Any = SimpleNamespace(region="us-east-1", aws=aws, read=lambda url: config.encode())
    with pytest.raises(AwsError, match="the image's description is damaged: "):
        list(image.examined(case, "123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1", catalog.load()["g5.xlarge"], ""))
