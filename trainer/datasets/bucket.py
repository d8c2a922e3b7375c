"""Read files from a folder in S3, and cache them on this machine.

Files are read with obstore, Python bindings for the Rust library object_store, which finds the credentials of nodes and
containers.  It is imported only if a training has a --data-url.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainer.errors import DataError, FullDisk, MachineError, SettingsError, is_full, one_line
from trainer.files import digest_of, locked

URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>.*?))?/*")
CHUNK = 8 * 2**20  # bytes per write
# S3 throttles many nodes that start at once; AWS recommends retrying with exponential back-off.
RETRIES, RETRY_FOR_S, ANSWER_WITHIN_S = 10, 180, 60
LOOK_UP_S = 5.0
ATTEMPTS = 2


class Bucket:
    """A folder in S3.  url: s3://BUCKET/PREFIX."""

    def __init__(self, url: str) -> None:
        match = URL.fullmatch(url)
        if match is None:
            raise SettingsError(f"--data-url {one_line(url)} is not a folder in S3; write it as s3://BUCKET/FOLDER.")
        try:
            from obstore.store import S3Store
        except ModuleNotFoundError as error:
            raise SettingsError(
                "--data-url needs obstore, which is not installed; run pip install -c constraints.txt -e '.[s3]' in "
                "the checkout."
            ) from error
        self.url = url.rstrip("/")
        with self._errors_in_words(""):
            self._store: Any = S3Store(
                match["bucket"],
                prefix=match["prefix"] or None,
                # The user's AWS_ENDPOINT_URL may use http; AWS's own endpoints use https.
                client_options={"timeout": timedelta(seconds=ANSWER_WITHIN_S), "allow_http": True},
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_FOR_S)},
            )

    def read(self, name: str) -> bytes:
        """Read an object.  Raises DataError and MachineError."""
        return b"".join(self._chunks(name))

    def fetch(self, name: str, target: Path) -> None:
        """Write an object to the file `target`.  Raises DataError, MachineError and, for the file, OSError."""
        with target.open("wb") as file:
            for chunk in self._chunks(name):
                file.write(chunk)

    def _chunks(self, name: str) -> Iterator[bytes]:
        import obstore

        with self._errors_in_words(name):
            chunks = iter(obstore.get(self._store, name).stream(min_chunk_size=CHUNK))
        while True:
            with self._errors_in_words(name):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield bytes(chunk)

    @contextmanager
    def _errors_in_words(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        place = f"{self.url}/{name}".rstrip("/")
        try:
            yield
        except FileNotFoundError as error:
            raise DataError(f"no {place} in S3; give --data-url a folder made by trainer.prepare.") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise DataError(
                f"S3 denies this machine access to {place}; give its role s3:GetObject there, or check the name."
            ) from error
        except (BaseError, OSError, ValueError) as error:
            why = one_line(str(error).partition("\n")[0], 300)
            raise MachineError(f"cannot read {place}: {why}") from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # raised by obstore for a malformed endpoint or key
                raise
            why = one_line(str(error).partition("\n")[0], 200)
            raise SettingsError(
                f"cannot read {place} ({why}); check AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from error


def set_defaults(url: str, env: MutableMapping[str, str]) -> None:
    """Set AWS_REGION, which obstore needs, to the bucket's region unless a region or an endpoint is set."""
    match = URL.fullmatch(url)
    is_known = any(env.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"))
    if match and not is_known and (region := region_of(match["bucket"])):
        env["AWS_REGION"] = region


def region_of(bucket: str) -> str | None:
    """The region of a bucket, or None if S3 does not answer.

    HeadBucket returns it in a header, even without permission to read the bucket:
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadBucket.html
    """
    request = urllib.request.Request(f"https://s3.amazonaws.com/{bucket}", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=LOOK_UP_S) as answer:  # noqa: S310  # https, see above
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    except OSError:
        return None
    found: str | None = headers.get("x-amz-bucket-region")
    return found


class Cache:
    """Local copies of a bucket's files, named by their digest and shared by the ranks of a machine."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self.bucket, self._folder = bucket, folder

    def path(self, sha256: str) -> Path:
        """The path of a file once it is fetched."""
        return self._folder / f"{sha256}.shard"

    def fetch(self, name: str, sha256: str, size: int | None = None) -> Path:
        """The path of the file, which is fetched unless a complete copy exists.  Raises TrainerError.

        size: in bytes, to detect a file that was truncated when the machine stopped; None: compare the digest.
        """
        path = self.path(sha256)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(path.with_suffix(".lock")):
                if not _is_whole(path, sha256, size):
                    part = path.with_suffix(".part")
                    self._fill(name, sha256, part)
                    part.replace(path)
        except OSError as error:
            sentence = f"cannot keep {name} in {self._folder} ({one_line(error.strerror or error)})"
            if is_full(error):
                raise FullDisk(f"{sentence}; lower --data-cache-gb, or give another --cache-dir.") from error
            raise MachineError(f"{sentence}; give another --cache-dir.") from error
        return path

    def _fill(self, name: str, sha256: str, part: Path) -> None:
        for _ in range(ATTEMPTS):
            self.bucket.fetch(name, part)
            if digest_of(part) == sha256:
                return
        raise DataError(f"{self.bucket.url}/{name} does not match its digest; publish the data again.")


def _is_whole(path: Path, sha256: str, size: int | None) -> bool:
    try:
        return digest_of(path) == sha256 if size is None else path.stat().st_size == size
    except FileNotFoundError:
        return False
