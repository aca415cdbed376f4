"""Sealing: secrets are encrypted with a key that lies in a file of its own, not in the database or its backups."""

from __future__ import annotations

import hmac
import os
from contextlib import suppress
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from weft.errors import UsageError


class Sealer:
    """Encrypts and decrypts with the key of a file, which is made when it is not there, for its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(Fernet.generate_key())
        self._key = path.read_bytes().strip()
        try:
            self._fernet = Fernet(self._key)
        except ValueError:
            raise UsageError(
                f"{path} must hold the key that seals secrets, got something else; restore it from its backup"
            ) from None

    def derive(self, purpose: str) -> str:
        """Return a key for one purpose, which tells nothing about the key of the file."""
        return hmac.digest(self._key, purpose.encode(), "sha256").hex()

    def seal(self, text: str) -> bytes:
        return self._fernet.encrypt(text.encode())

    def open(self, sealed: bytes) -> str:
        """Return what was sealed; an error where another key did it."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise UsageError(
                f"a secret must be sealed with the key in {self._path}, got one of another key; set it anew"
            ) from None
