"""Passwords: kept as salted hashes of scrypt, which takes an attacker memory and time for each guess."""

from __future__ import annotations

import hashlib
import hmac
import secrets

_LOG2_N, _R, _P = 15, 8, 1  # 32 MiB and some 0.1 s for each try
_SALT_BYTES, _HASH_BYTES = 16, 32
_MAX_MEMORY_BYTES = 128 << 20


def hash_password(password: str) -> str:
    """Return a password's hash, with the numbers by which it was made. Takes about 0.1 s."""
    salt = secrets.token_bytes(_SALT_BYTES)
    made = _scrypt(password, salt, _LOG2_N, _R, _P)
    return f"scrypt${_LOG2_N}${_R}${_P}${salt.hex()}${made.hex()}"


def is_password(password: str, stored: str | None) -> bool:
    """Return whether a password is the one of a hash; an unknown user takes as long as a wrong password."""
    known = stored or hash_of_nobody()
    try:
        scheme, log2_n, r, p, salt, made = known.split("$")
        found = _scrypt(password, bytes.fromhex(salt), int(log2_n), int(r), int(p))
    except ValueError:
        return False
    return scheme == "scrypt" and hmac.compare_digest(found, bytes.fromhex(made)) and stored is not None


def hash_of_nobody() -> str:
    """Return a hash that no password has."""
    return f"scrypt${_LOG2_N}${_R}${_P}${'00' * _SALT_BYTES}${'00' * _HASH_BYTES}"


def _scrypt(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=1 << log2_n,
        r=r,
        p=p,
        dklen=_HASH_BYTES,
        maxmem=_MAX_MEMORY_BYTES,
    )
