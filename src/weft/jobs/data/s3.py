"""S3's objects as files of jobs, carried in several threads.

Files that come down are kept in a cache by ETag, so that a job which needs them again starts at once.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath

from weft.errors import UsageError
from weft.files import drafting, locked
from weft.jobs.data.manifests import DataFile, DataManifest
from weft.s3 import THREADS, S3Bucket, S3Object, S3Place


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
