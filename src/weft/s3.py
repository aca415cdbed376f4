"""S3: places, connections, and buckets whose objects are listed and carried down and up with boto3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConnectError, UsageError

THREADS = 8  # that may carry objects of one bucket at once
CONNECT_S = 10
READ_S = 60
MOST_OBJECTS = 200_000  # of one place that are listed


class S3Connection(msgspec.Struct, frozen=True):
    """The address of an S3 service and the credentials for it; empty fields are boto3's to find."""

    endpoint: str = ""
    key: str = ""
    secret: str = ""
    region: str = ""

    def __repr__(self) -> str:
        return f"S3Connection({self.endpoint!r})"  # never the credentials


class S3Place(msgspec.Struct, frozen=True):
    """A bucket and a prefix, reached by a named connection."""

    bucket: str
    prefix: str
    connection: str = ""

    def __str__(self) -> str:
        at = f"{self.connection}@" if self.connection else ""
        return f"s3://{at}{self.bucket}/{self.prefix}".rstrip("/")


_PLACE = re.compile(r"s3://(?:([A-Za-z0-9_-]{1,100})@)?([A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:/(.*))?")


def parse_place(text: str) -> S3Place:
    """Return what `s3://connection@bucket/prefix` names."""
    match = _PLACE.fullmatch(text)
    prefix = (match[3] or "").strip("/") if match else ""
    if match is None or ".." in prefix.split("/") or not prefix.isprintable() or len(prefix.encode()) > 1024:
        raise UsageError(f"a place in S3 must be s3://BUCKET/PREFIX, got {text[:200]!r}; name a bucket")
    return S3Place(match[2], prefix, match[1] or "")


@dataclass(frozen=True)
class S3Object:
    """One object of a bucket."""

    key: str
    size: int
    etag: str


class S3Bucket:
    """One bucket; its methods may be called from several threads."""

    def __init__(self, connection: S3Connection, place: S3Place) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ModuleNotFoundError:
            raise UsageError(
                f"{place} must be reached by boto3, got no such package; install weft[s3]"
            ) from None
        self.place = place
        self._endpoint = connection.endpoint
        settings: dict[str, Any] = {
            "endpoint_url": connection.endpoint or None,
            "aws_access_key_id": connection.key or None,
            "aws_secret_access_key": connection.secret or None,
            "region_name": connection.region or None,
            "config": Config(
                connect_timeout=CONNECT_S,
                read_timeout=READ_S,
                retries={"max_attempts": 4, "mode": "standard"},
                max_pool_connections=THREADS,
            ),
        }
        # A session of its own: boto3's default one is shared, and not made for threads.
        self._client = boto3.session.Session().client("s3", **settings)

    @property
    def identity(self) -> str:
        """The bucket's name for the cache: buckets of two services may have the same name."""
        return f"{self._endpoint}|{self.place.bucket}"

    def objects(self, most: int = MOST_OBJECTS) -> list[S3Object]:
        """Return the objects at the place: the one with that key, or all below it."""
        prefix = self.place.prefix
        found = []
        with self._errors_in_words():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.place.bucket, Prefix=prefix
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    key = str(item["Key"])
                    if key == prefix or not prefix or key.startswith(f"{prefix}/"):
                        found.append(S3Object(key, int(item["Size"]), str(item["ETag"]).strip('"')))
                if len(found) > most:
                    raise UsageError(
                        f"{self.place} must have at most {most} objects, got more; name a prefix"
                    )
        return [one for one in found if not one.key.endswith("/")]

    def download(self, wanted: S3Object, path: Path) -> None:
        """Write an object to a file, whole; one that has changed since it was listed is refused."""
        with self._errors_in_words(), path.open("wb") as file:
            answer = self._client.get_object(Bucket=self.place.bucket, Key=wanted.key, IfMatch=wanted.etag)
            for part in answer["Body"].iter_chunks(1 << 20):
                file.write(part)
        if path.stat().st_size != wanted.size:
            raise ConnectError(
                f"{wanted.key} must come whole, got {path.stat().st_size} of {wanted.size} bytes; retry"
            )

    def upload(self, path: Path, key: str) -> None:
        with self._errors_in_words():
            self._client.upload_file(str(path), self.place.bucket, key)

    def _errors_in_words(self) -> Any:
        return _ErrorsInWords(self.place)


class _ErrorsInWords:
    """Turns boto3's errors into ours, without credentials."""

    def __init__(self, place: S3Place) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError):
            code = error.response.get("Error", {}).get("Code", "unknown")
            raise UsageError(
                f"{self._place} must be there and readable, got {code}; check the name and its secret"
            ) from None
        if isinstance(error, BotoCoreError | Boto3Error):
            raise ConnectError(
                f"{self._place} must be reachable, got {type(error).__name__}; check its endpoint"
            ) from None
