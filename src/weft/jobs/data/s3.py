"""S3: buckets listed, objects carried down and up, in several threads, with boto3.

Files that come down are kept in a cache by ETag, so that a job which needs them again starts at once.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from weft.errors import ConnectError, UsageError
from weft.files import drafting, locked
from weft.jobs.data.connections import S3Connection, S3Place
from weft.jobs.data.manifests import MOST_FILES, DataFile, DataManifest

THREADS = 8
CONNECT_S = 10
READ_S = 60


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

    def objects(self) -> list[S3Object]:
        """Return the objects at the place: the one with that key, or all below it."""
        prefix = self.place.prefix
        found = []
        with self._told():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.place.bucket, Prefix=prefix
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    key = str(item["Key"])
                    if key == prefix or not prefix or key.startswith(f"{prefix}/"):
                        found.append(S3Object(key, int(item["Size"]), str(item["ETag"]).strip('"')))
                if len(found) > MOST_FILES:
                    raise UsageError(
                        f"{self.place} must have at most {MOST_FILES} objects, got more; name a prefix"
                    )
        return [one for one in found if not one.key.endswith("/")]

    def download(self, wanted: S3Object, path: Path) -> None:
        """Write an object to a file, whole; one that has changed since it was listed is refused."""
        with self._told(), path.open("wb") as file:
            answer = self._client.get_object(Bucket=self.place.bucket, Key=wanted.key, IfMatch=wanted.etag)
            for part in answer["Body"].iter_chunks(1 << 20):
                file.write(part)
        if path.stat().st_size != wanted.size:
            raise ConnectError(
                f"{wanted.key} must come whole, got {path.stat().st_size} of {wanted.size} bytes; retry"
            )

    def upload(self, path: Path, key: str) -> None:
        with self._told():
            self._client.upload_file(str(path), self.place.bucket, key)

    def _told(self) -> Any:
        return _Told(self.place)


class _Told:
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


def manifest_of(objects: Sequence[S3Object], place: S3Place) -> DataManifest:
    """Return the manifest of objects; their paths begin at the place."""
    if not objects:
        raise UsageError(f"{place} must have objects, got none; check bucket and prefix")
    single = len(objects) == 1 and objects[0].key == place.prefix
    files = []
    for one in objects:
        name = PurePosixPath(one.key).name if single else one.key[len(place.prefix) :].lstrip("/")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name or not name.isprintable():
            raise UsageError(f"keys in S3 must be plain paths, got {one.key[:200]!r}; rename it")
        files.append(DataFile(name, one.size, f"etag:{one.etag}"))
    return DataManifest(tuple(sorted(files, key=lambda file: file.path)), single)


class S3Cache:
    """Objects that were fetched, by ETag, and folders of links to them, by manifest."""

    def __init__(self, folder: Path) -> None:
        self._objects, self._trees = folder / "objects", folder / "trees"

    def fetch(self, bucket: S3Bucket, objects: Sequence[S3Object]) -> Path:
        """Return a folder with the files of a place, or the file if it is one; what is there is not fetched again."""
        manifest = manifest_of(objects, bucket.place)
        name = hashlib.sha256(f"{bucket.identity}|{manifest.digest}|{manifest.single}".encode()).hexdigest()
        tree = self._trees / name
        for folder in (self._objects, self._trees):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._trees / f"{name}.lock"):
            if not tree.is_dir():
                self._make(bucket, objects, manifest, tree)
        os.utime(tree)
        return tree / manifest.files[0].path if manifest.single else tree

    def _make(
        self, bucket: S3Bucket, objects: Sequence[S3Object], manifest: DataManifest, tree: Path
    ) -> None:
        by_etag = {f"etag:{one.etag}": one for one in objects}
        with ThreadPoolExecutor(THREADS, "s3") as pool:
            kept = dict(
                zip(by_etag, pool.map(lambda one: self._keep(bucket, one), by_etag.values()), strict=True)
            )
        with drafting(self._trees) as draft:
            for file in manifest.files:
                target = draft / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(kept[file.digest], target)
            # Jobs of other system users read it, if they are told its name.
            for folder in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
                folder.chmod(0o755)
            draft.rename(tree)

    def _keep(self, bucket: S3Bucket, wanted: S3Object) -> Path:
        digest = hashlib.sha256(f"{bucket.identity}|{wanted.etag}|{wanted.size}".encode()).hexdigest()
        path = self._objects / digest[:2] / digest[2:]
        if path.is_file():
            return path
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            bucket.download(wanted, draft)
            draft.chmod(0o444)  # jobs share it
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return path

    def sweep(self, older_than_s: float, now_s: float) -> int:
        """Remove folders that no job has used for so long, and objects that are in none; return the bytes freed."""
        import shutil

        for tree in self._trees.iterdir() if self._trees.is_dir() else ():
            if tree.is_dir() and now_s - tree.stat().st_mtime > older_than_s:
                shutil.rmtree(tree, ignore_errors=True)
        freed = 0
        for path in _files(self._objects):
            with suppress(OSError):
                found = path.stat()
                if found.st_nlink == 1 and now_s - found.st_ctime > older_than_s:
                    path.unlink()
                    freed += found.st_size
        return freed


def upload_folder(bucket: S3Bucket, folder: Path) -> int:
    """Carry the files of a folder to the place; return how many there were."""
    files = [(path, path.relative_to(folder).as_posix()) for path in _files(folder)]
    prefix = f"{bucket.place.prefix}/" if bucket.place.prefix else ""
    with ThreadPoolExecutor(THREADS, "s3") as pool:
        list(pool.map(lambda item: bucket.upload(item[0], prefix + item[1]), files))
    return len(files)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and not path.is_symlink():
            yield path
