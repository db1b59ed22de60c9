"""Which host answers a request: the one whose cache most likely has its beginning."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mlxnb.link.record import HostRecord
from mlxnb.wire.ids import host_of
from mlxnb.wire.system import system_text


@dataclass(frozen=True, slots=True)
class Wish:
    """What of a request decides who answers it.

    Attributes
    ----------
    model
        As asked for; None: it says none.
    earlier
        Ids of earlier responses that it names; they name their hosts.
    key
        ``prompt_cache_key``.
    system
        The system text, which most requests of one client begin with.
    """

    model: str | None = None
    earlier: tuple[str, ...] = ()
    key: str | None = None
    system: str | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Wish:
        """What a request's body says, in any of the protocols; what is malformed says nothing."""
        named = (
            body.get("previous_response_id"),
            _inside(body, "prompt_cache_options", "comparison_response_id"),
            _inside(body, "diagnostics", "previous_message_id"),
        )
        return cls(
            model=_text(body.get("model")),
            earlier=tuple(name for name in named if isinstance(name, str)),
            key=_text(body.get("prompt_cache_key")),
            system=_system(body),
        )


def choose(wish: Wish, hosts: Sequence[HostRecord], model: str | None) -> HostRecord | None:
    """The host to ask, or None: none of them has the model (W61).

    Parameters
    ----------
    hosts
        Live ones, newest first.
    model
        The name that the asked one stands for; None: any host will do.
    """
    having = [host for host in hosts if model is None or model in host.models]
    named = [host_of(name) for name in wish.earlier]
    for host in having:
        if host.id in named:
            return host
    affinity = wish.key or wish.system
    if affinity is None:
        return having[0] if having else None
    return max(having, key=lambda host: _weight(host, affinity), default=None)


def resolve(asked: str, aliases: Mapping[str, str]) -> str:
    """The model that a name stands for; of several patterns that fit, the first."""
    if asked in aliases:
        return aliases[asked]
    return next((real for glob, real in aliases.items() if fnmatchcase(asked, glob)), asked)


def _weight(host: HostRecord, affinity: str) -> bytes:
    """Rendezvous hashing: when a host comes or goes, only its own requests move."""
    return hashlib.sha256(f"{host.uuid}\0{affinity}".encode("utf-8", "surrogatepass")).digest()


def _system(body: Mapping[str, Any]) -> str | None:
    """The system text of Messages, of Responses, or of the first message of a list."""
    for field in ("system", "instructions"):
        if field in body:
            return _content(body[field])
    for field in ("input", "messages"):
        messages = body.get(field)
        first = messages[0] if isinstance(messages, list) and messages else None
        if isinstance(first, dict) and first.get("role") in ("system", "developer"):
            return _content(first.get("content"))
    return None


def _content(content: Any) -> str | None:
    blocks: Iterable[Any] = content if isinstance(content, list) else [content]
    texts = (block.get("text") if isinstance(block, dict) else block for block in blocks)
    return system_text([text for text in texts if isinstance(text, str)]) or None


def _inside(body: Mapping[str, Any], *path: str) -> Any:
    value: Any = body
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
