"""Look up images in ECR, Amazon's container registry, by tag and digest."""

import re
from collections.abc import Mapping
from typing import Any

from launch.aws.client import Aws
from launch.core.errors import AwsError

PLACE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+)"
    r"(:(?P<tag>[^:@]+))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# Docker's and OCI's media types, of images and of lists of images for several platforms.
MANIFESTS = ("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json")
LISTS = ("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json")
NOT_FOUND = ("ImageNotFound", "RepositoryNotFoundException")


def image_at(aws: Aws, place: re.Match[str], image_id: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """ECR's answer for the image at `place`, or for `image_id` in its repository; empty if there is none.

    By BatchGetImage: registries of other accounts, such as AWS's own, allow pulling but not DescribeImages.
    """
    named = {"imageDigest": place["digest"]} if place["digest"] else {"imageTag": place["tag"] or "latest"}
    query = {
        "registryId": place["account"],
        "repositoryName": place["name"],
        "imageIds": [image_id or named],
        "acceptedMediaTypes": [*MANIFESTS, *LISTS],
    }
    images = aws.call("ecr", "BatchGetImage", query)["images"]
    return images[0] if images else {}


def by_digest(aws: Aws, uri: str, remedy: str) -> str:
    """Replace the tag in `uri` by its current digest; leave a `uri` as it is that has one or is not in ECR.

    remedy: for a missing image.  Raises AwsError, in that case with a code of NOT_FOUND.
    """
    place = PLACE.fullmatch(uri)
    if place is None or place["digest"] or place["region"] != aws.region:
        return uri
    try:
        image = image_at(aws, place)
    except AwsError as error:
        if error.aws_code not in NOT_FOUND:
            raise
        image = {}
    if not image:
        where = f"the registry of {place['account']} in {place['region']}"
        raise AwsError(f"{where} has no image {place['name']}:{place['tag'] or 'latest'}; {remedy}", NOT_FOUND[0])
    return f"{uri.partition('/')[0]}/{place['name']}@{image['imageId']['imageDigest']}"
