"""Ids on the wire: which host made one, and which response an item belongs to.

``resp_{host}_{random}`` is a response, ``msg_{host}_{random}`` the same one where a message is
what is answered, and ``fc_{host}_{random}_{n}`` the n-th item of it. ``host`` has eight letters.
"""

from __future__ import annotations

import re
import secrets

HOST = re.compile(r"[A-Za-z0-9]{8}")
_ID = re.compile(rf"[a-z]+_(?P<rest>(?P<host>{HOST.pattern})_[A-Za-z0-9]+)(?:_(?P<item>\d+))?")
_CALL, _TOOLU = "call_", "toolu_"


def response_id(host: str) -> str:
    """A new id; ``host`` as in the host's record."""
    assert HOST.fullmatch(host), f"a host's id has eight letters: {host!r}"
    return f"resp_{host}_{secrets.token_hex(12)}"


def host_of(wire_id: str) -> str | None:
    """The host that made it; None: no id of ours."""
    found = _ID.fullmatch(wire_id)
    return found["host"] if found else None


def item_id(prefix: str, response: str, index: int) -> str:
    """The id of a response's item at ``index``."""
    return f"{prefix}_{response.partition('_')[2]}_{index}"


def response_of(item: str) -> str | None:
    """The response that an item's id names; None: no item of ours."""
    found = _ID.fullmatch(item)
    return f"resp_{found['rest']}" if found and found["item"] else None


def renamed(wire_id: str, prefix: str) -> str:
    """The same response under another prefix: ``resp_…`` is ``msg_…`` to Anthropic's clients."""
    return f"{prefix}_{wire_id.partition('_')[2]}"


def toolu(call_id: str) -> str:
    """Our id of a call as Anthropic's clients see it, and theirs as we keep it.

    The two prefixes are exchanged and all else is left, so that the map is its own inverse: what
    clients made up comes back to them as it was.
    """
    for prefix, other in ((_CALL, _TOOLU), (_TOOLU, _CALL)):
        if call_id.startswith(prefix):
            return other + call_id[len(prefix) :]
    return call_id
