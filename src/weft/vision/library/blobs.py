"""Blobs: pictures and films by the digest of their content, each whole or not there; thumbnails when asked."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from weft.vision.pictures.decoding import decode, encode_jpeg
from weft.vision.pictures.headers import SUFFIXES

_SUFFIXES: Mapping[str, str] = {str(kind): suffix for kind, suffix in SUFFIXES.items()}
_DRAFT_AGE_S = 3600.0  # after which a draft is nobody's any more
_THUMBNAIL_QUALITY = 82


class BlobFolder:
    """A folder of files named by their content: ab/abcdef....jpg."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pictures = folder / "pictures"
        self._thumbnails = folder / "thumbnails"
        self._incoming = folder / "incoming"
        for place in (self._pictures, self._thumbnails, self._incoming):
            place.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str, media: str) -> Path:
        """Return where a blob is, or would be."""
        suffix = _SUFFIXES.get(media, "." + media.lower())
        return self._pictures / sha256[:2] / (sha256 + suffix)

    def put(self, data: bytes, sha256: str, media: str) -> Path:
        """Keep bytes; those that are there already are left as they are."""
        path = self.path(sha256, media)
        if not path.exists():
            draft = self.draft()
            draft.write_bytes(data)
            self._place(draft, path)
        return path

    def take(self, draft: Path, sha256: str, media: str) -> Path:
        """Keep a file of the incoming folder, which moves."""
        path = self.path(sha256, media)
        if path.exists():
            draft.unlink()
        else:
            self._place(draft, path)
        return path

    def _place(self, draft: Path, path: Path) -> None:
        try:
            draft.replace(path)
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True)
            draft.replace(path)

    def draft(self, suffix: str = "") -> Path:
        """Return a place in the incoming folder that nobody else uses."""
        return self._incoming / f"{os.getpid()}-{secrets.token_hex(8)}{suffix}"

    def thumbnail(self, sha256: str, media: str, side: int) -> Path:
        """Return a small JPEG of a picture, made at the first time it is asked for."""
        path = self._thumbnails / sha256[:2] / f"{sha256}-{side}.jpg"
        if not path.exists():
            pixels = decode(self.path(sha256, media), max_side=side)
            draft = self.draft()
            draft.write_bytes(encode_jpeg(pixels, _THUMBNAIL_QUALITY))
            self._place(draft, path)
        return path

    def keep_thumbnail(self, sha256: str, side: int, data: bytes) -> None:
        """Keep a thumbnail that was made elsewhere, as that of a film."""
        draft = self.draft()
        draft.write_bytes(data)
        self._place(draft, self.thumbnail_path(sha256, side))

    def thumbnail_path(self, sha256: str, side: int) -> Path:
        return self._thumbnails / sha256[:2] / f"{sha256}-{side}.jpg"

    def all_blobs(self) -> Iterator[Path]:
        for folder in self._pictures.iterdir():
            yield from folder.iterdir()

    def sweep(self, kept: set[str]) -> int:
        """Remove blobs that nothing refers to, their thumbnails, and drafts of makers that are gone; count them."""
        removed = 0
        before_s = time.time() - _DRAFT_AGE_S
        for path in [*self.all_blobs(), *self._thumbnails.glob("*/*")]:
            if path.name[:64] not in kept and path.stat().st_mtime < before_s:
                path.unlink(missing_ok=True)
                removed += 1
        for path in self._incoming.iterdir():
            if path.stat().st_mtime < before_s:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                removed += 1
        return removed


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
