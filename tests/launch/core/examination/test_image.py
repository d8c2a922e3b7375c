"""What an image says of itself."""

import pytest

from launch.core.examination import image


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
