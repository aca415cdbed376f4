"""Files of a table in S3: what a bucket has below a prefix, fetched for as long as a fit or a prediction reads them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.s3 import THREADS, S3Bucket, S3Connection, S3Object, parse_place

SCHEME = "s3://"


def is_in_s3(X: Any) -> bool:
    return isinstance(X, str) and X.startswith(SCHEME)


class S3Table:
    """The files of one place, listed once; boto3 finds the endpoint and the credentials."""

    def __init__(self, text: str, suffixes: Sequence[str]) -> None:
        place = parse_place(text)
        if place.connection:
            raise DataError(
                f"a table in S3 must be s3://BUCKET/PREFIX, got the connection {place.connection!r} in it; "
                "set AWS_PROFILE or AWS_ENDPOINT_URL instead"
            )
        self.text = text
        self.bucket = S3Bucket(S3Connection(), place)
        self.objects: list[S3Object] = sorted(
            (one for one in self.bucket.objects() if one.key.lower().endswith(tuple(suffixes))),
            key=lambda one: one.key,
        )
        if not self.objects:
            raise DataError(f"{text} must have files that end in {', '.join(suffixes)}, got none")

    def fingerprint(self, target: str | None) -> str:
        """Return a hash of the names and the contents of all files, and of the target."""
        told = [(one.key, one.size, one.etag) for one in self.objects]
        return hashlib.sha256(repr((self.bucket.identity, told, target)).encode()).hexdigest()[:16]

    @contextmanager
    def fetched(self) -> Iterator[list[Path]]:
        """Yield the files, in the order of their keys; they are removed at the end."""
        with (
            tempfile.TemporaryDirectory(prefix="weft-s3-") as folder,
            ThreadPoolExecutor(THREADS, "s3") as pool,
        ):
            paths = [
                Path(folder) / f"{number:06d}-{Path(one.key).name}" for number, one in enumerate(self.objects)
            ]
            list(pool.map(self.bucket.download, self.objects, paths))
            yield paths
