"""Passwords: hashing with argon2, rules for new ones, and generated ones."""

import secrets
import threading
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from backend.domain.errors import InvalidRequest

LEAST_LENGTH = 12
GREATEST_LENGTH = 256
# No 0/o and no 1/l/i: people type these from paper. 31 letters, 20 of them: 99 bits.
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"

_hasher = PasswordHasher()
# One hash takes 64 MiB and 4 threads: a burst of logins waits here and does not take the machine's memory.
_hashing = threading.BoundedSemaphore(4)


def hash_password(password: str) -> str:
    """Argon2id with the library's parameters and a salt of its own."""
    with _hashing:
        return _hasher.hash(password)


def is_right(password: str, password_hash: str | None) -> bool:
    """Whether the password matches. Without a hash (no such account) it takes as long and is False."""
    with _hashing:
        try:
            return _hasher.verify(password_hash or _nobodys_hash(), password) and password_hash is not None
        except (VerificationError, InvalidHashError):
            return False


def is_outdated(password_hash: str) -> bool:
    """Whether the hash was made with other parameters than today's."""
    return _hasher.check_needs_rehash(password_hash)


def require_acceptable(password: str, *, name: str) -> None:
    """Refuse a new password that is too short, too long, or holds the account's name. Raises `InvalidRequest`."""
    if not LEAST_LENGTH <= len(password) <= GREATEST_LENGTH:
        raise InvalidRequest(f"a password has {LEAST_LENGTH} to {GREATEST_LENGTH} characters")
    if len(name) > 3 and name in password.casefold():
        raise InvalidRequest("a password does not contain the account's name")


def generate_password() -> str:
    """A random password in four groups of five letters and digits."""
    return "-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(4))


@cache
def _nobodys_hash() -> str:
    return _hasher.hash(secrets.token_hex(16))
