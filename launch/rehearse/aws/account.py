"""An AWS account in this process, in moto's own backends.  Needs the extra `rehearse`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ecr.models import ecr_backends
from moto.iam.models import iam_backends
from moto.logs.models import logs_backends
from moto.s3.models import s3_backends
from moto.secretsmanager.models import secretsmanager_backends
from moto.ssm.models import ssm_backends

from launch.aws.names import bucket_of, known_s3
from launch.core.secrets import read_references

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
SERVICES = [f"{name}.amazonaws.com" for name in ("ec2", "sagemaker", "scheduler", "ssm")]
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": SERVICES}, "Action": "sts:AssumeRole"}],
}
REHEARSED = "rehearsed"  # the value of every secret


@dataclass
class Account:
    """One region of moto's account."""

    region: str
    rules: Any = None  # what AWS has and allows
    id: str = DEFAULT_ACCOUNT_ID

    @property
    def bucket(self) -> str:
        """The toolkit's own bucket."""
        return bucket_of(self.id, self.region)

    def make_bucket(self, name: str, region: str | None = None) -> None:
        """Makes another bucket, if it is not there.  region: default: the account's."""
        if name not in s3_backends[self.id]["aws"].buckets:
            s3_backends[self.id]["aws"].create_bucket(name, region or self.region)

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Makes an object."""
        s3_backends[self.id]["aws"].put_object(bucket, key, content)

    def put_folder(self, uri: str, folder: Path) -> None:
        """Puts the files of a folder under an s3:// URI."""
        place = known_s3(uri)
        self.make_bucket(place.bucket)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            key = "/".join(filter(None, (place.key.rstrip("/"), file.relative_to(folder).as_posix())))
            self.put(place.bucket, key, file.read_bytes())

    def make_role(self, name: str, trust: Mapping[str, Any] = TRUST) -> str:
        """Makes a role if it is not there; returns its ARN.  trust: who may assume it, by default AWS's services.

        Without policies: those go by access key, see rules.access.
        """
        iam = iam_backends[self.id]["aws"]
        if there := [role for role in iam.get_roles() if role.name == name]:
            return str(there[0].arn)
        role = iam.create_role(name, json.dumps(trust), "/", None, "", [], 3600)  # type: ignore[arg-type,unused-ignore]
        return str(role.arn)

    def make_image(self, repository: str, tag: str = "latest", digest: str = "") -> str:
        """Makes a container image; returns its digest.  digest: the one to give it, by default moto's own."""
        ecr = ecr_backends[self.id][self.region]
        if repository not in ecr.repositories:
            ecr.create_repository(repository, None, None, None, None, None)  # type: ignore[arg-type,unused-ignore]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": [], "config": {"digest": f"{tag}{digest}"}}
        image = ecr.put_image(repository, json.dumps(manifest), tag, MANIFEST)
        if digest:
            image._image_digest = digest
        return str(image.get_image_digest())

    def make_secrets(self, words: Iterable[str]) -> None:
        """Makes the secrets that --secret names, with a made-up value: the user's are not read."""
        for reference in dict.fromkeys(read_references(words).values()):
            service, _, name = reference.partition(":")
            if service == "ssm":
                kind = {"parameter_type": "SecureString", "data_type": "text", "allowed_pattern": "", "keyid": ""}
                ssm_backends[self.id][self.region].put_parameter(
                    name, "", REHEARSED, **kind, overwrite=True, tags=[], tier=None, policies=None
                )
            else:
                secretsmanager_backends[self.id][self.region].create_secret(
                    name, REHEARSED, None, None, None, None, None, [], True
                )

    def resources(self) -> set[str]:
        """Resources that cost money or have the toolkit's tag, in any region; not S3 and logs, which are to stay."""
        with self.rules.lock:
            return set(self._resources())

    @abstractmethod
    def _resources(self) -> Iterable[str]:
        """Each as "KIND NAME"."""

    def s3(self, key: str, bucket: str | None = None) -> Any:
        """The JSON under `key`, or None."""
        stored = self.objects(bucket).get(key)
        return None if stored is None else json.loads(stored.value)

    def objects(self, bucket: str | None = None) -> Any:
        """The objects of a bucket by key: moto's own, with their content in .value.  Raises moto's MissingBucket."""
        return s3_backends[self.id]["aws"].get_bucket(bucket or self.bucket).keys

    def logs(self) -> dict[str, list[str]]:
        """The lines in CloudWatch, by stream."""
        groups = list(logs_backends[self.id][self.region].groups.values())
        streams = [(name, stream) for group in groups for name, stream in list(group.streams.items())]
        return {name: [event.message for event in list(stream.events)] for name, stream in streams}
