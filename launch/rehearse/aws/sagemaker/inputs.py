"""The input data of training jobs, as SageMaker checks them."""

from __future__ import annotations

from typing import Any

from moto.s3.models import s3_backends


def missing_data(request: dict[str, Any], arn: str) -> str:
    """AWS's sentence on the first channel without objects; empty if there is none."""
    region, account = arn.split(":")[3:5]
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource")
        bucket, _, prefix = source["S3Uri"].removeprefix("s3://").partition("/") if source else ("", "", "")
        stored = s3_backends[account]["aws"].buckets.get(bucket)
        if source and not (stored and any(key.startswith(prefix) for key in list(stored.keys))):
            return (
                f'No S3 objects found under S3 URL "{source["S3Uri"]}" given in input data source. Please ensure that '
                f"the bucket exists in the selected region ({region}), that objects exist under that S3 prefix, and "
                f'that the role "{request["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}".'
            )
    return ""
