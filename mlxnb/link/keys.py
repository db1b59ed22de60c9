"""Keys for clients: random, kept as hashes, good for mlxnb's HTTP routes and for nothing else."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from filelock import FileLock

from mlxnb.errors import InvalidOption, KeyExists, KeysBroken, UnknownKey
from mlxnb.link.places import keys_file, saved_key_file, write_private

PREFIX = "mlxnb_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key.

    Attributes
    ----------
    name
        Whom turns and stored responses of its clients are filed under.
    hash
        SHA-256 of the key, hexadecimal. A random key of 256 bits needs no slower one.
    created
        ISO 8601, UTC.
    """

    name: str
    hash: str = field(repr=False)
    created: str


def new(name: str, *, save: bool = False) -> str:
    """Make a key and return it; it cannot be shown again unless it is saved.

    Parameters
    ----------
    save
        Write it to a file of its own too, 0600, from which clients of this user can read it.

    Raises
    ------
    InvalidOption
        The name is not 1 to 64 letters, digits, dots, dashes and underscores.
    KeyExists
        There is a key of that name.
    KeysBroken, NotPrivate, StateUnwritable
        The file of the keys cannot be used.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"a key's name is 1 to 64 letters, digits, '.', '-' and '_', not {name!r}"
        )
    text = PREFIX + secrets.token_urlsafe(32)
    made = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    with _changing() as keys:
        if name in keys:
            raise KeyExists(f"there is a key named {name!r}; revoke it or choose another name")
        keys[name] = Key(name, _hash(text), made)
        if save:
            write_private(saved_key_file(name), text + "\n")
    return text


def revoke(name: str) -> None:
    """Forget a key: from now on it is refused.

    Raises
    ------
    UnknownKey
        There is none of that name.
    KeysBroken, NotPrivate, StateUnwritable
        The file of the keys cannot be used.
    """
    with _changing() as keys:
        if keys.pop(name, None) is None:
            raise _unknown(name, keys)
        saved_key_file(name).unlink(missing_ok=True)


def all_keys() -> list[Key]:
    """What is kept of every key, oldest first.

    Raises
    ------
    KeysBroken, NotPrivate, StateUnwritable
        The file of the keys cannot be used.
    """
    return list(_read().values())


def saved(name: str) -> str:
    """The key of that name, from the file that it was saved in.

    Raises
    ------
    UnknownKey
        There is none of that name, or it was not saved.
    """
    try:
        return saved_key_file(name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        keys = _read()
        if name not in keys:
            raise _unknown(name, keys) from None
        raise UnknownKey(
            f"only the hash of {name!r} was kept; "
            f"`mlxnb keys revoke {name}` and `mlxnb keys new {name} --save`"
        ) from None


def check(text: str) -> Key | None:
    """The key that a client presents, or None; takes as long for a near miss as for a far one.

    Raises
    ------
    KeysBroken, NotPrivate, StateUnwritable
        The file of the keys cannot be used.
    """
    hashed = _hash(text)
    # every one is compared, so that the time does not tell which one fits
    found = [key for key in _read().values() if hmac.compare_digest(key.hash, hashed)]
    return found[0] if found and text.startswith(PREFIX) else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _unknown(name: str, keys: dict[str, Key]) -> UnknownKey:
    there = ", ".join(keys) or "none; `mlxnb keys new NAME` makes one"
    return UnknownKey(f"no key is named {name!r}; there are: {there}")


def _read() -> dict[str, Key]:
    try:
        text = keys_file().read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {entry["name"]: Key(**entry) for entry in json.loads(text)["keys"]}
    except (ValueError, KeyError, TypeError) as error:
        raise KeysBroken(f"{keys_file()} is not a file of keys; remove it to begin anew") from error


@contextmanager
def _changing() -> Iterator[dict[str, Key]]:
    path = keys_file()
    with FileLock(path.with_suffix(".lock"), mode=0o600):
        keys = _read()
        yield keys
        entries = [asdict(key) for key in keys.values()]
        write_private(path, json.dumps({"version": 1, "keys": entries}, indent=1))
