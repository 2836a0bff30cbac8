"""Identifiers that people and models read: short, and drawn from a cryptographic source."""

import hashlib
import secrets
import string

ALPHABET = string.ascii_letters + string.digits
SHORT_ID_CHARS = 8
_SECRET_CHARS = 43
_KEY_PREFIX = "lb"


def new_short_id() -> str:
    """Eight characters of [A-Za-z0-9]: 62^8 values, so the caller retries on the rare collision."""
    return "".join(secrets.choice(ALPHABET) for _ in range(SHORT_ID_CHARS))


def is_short_id(value: str) -> bool:
    """Whether ``value`` has the form of a memory's id."""
    return len(value) == SHORT_ID_CHARS and value.isascii() and value.isalnum()


def new_key_secret(key_id: str) -> str:
    """A fresh API key that carries its own id: ``lb_<id>_<secret>``, 256 bits of secret."""
    return f"{_KEY_PREFIX}_{key_id}_" + "".join(secrets.choice(ALPHABET) for _ in range(_SECRET_CHARS))


def key_id_of(secret: str) -> str | None:
    """The id inside an API key, or None when the text has not the form of a key."""
    parts = secret.split("_")
    if len(parts) != 3 or parts[0] != _KEY_PREFIX or not is_short_id(parts[1]) or len(parts[2]) != _SECRET_CHARS:
        return None
    return parts[1]


def hash_secret(secret: str) -> bytes:
    """SHA-256 of an API key; the secret is random and long, so a slow hash would add nothing."""
    return hashlib.sha256(secret.encode()).digest()
