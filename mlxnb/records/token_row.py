"""The tokens of a turn, and where the KV of each came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mlxnb.errors import UnknownTurn
from mlxnb.records.divergence import Decode
from mlxnb.records.frames import typed_frame
from mlxnb.records.turn import TurnRecord

if TYPE_CHECKING:
    import pandas as pd

Origin = Literal["hot", "memory", "disk", "computed", "generated"]
COLUMNS: dict[str, str] = {
    "position": "Int64",
    "token_id": "Int64",
    "text": "string",
    "role": "string",
    "message": "Int64",
    "origin": "string",
    "diverged": "boolean",
}


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One token of a turn's prompt or output.

    Attributes
    ----------
    token_id, text
        None and empty where texts are not shown.
    role
        system | user | assistant | tool | template, or output.
    message
        The number of its message; None: of the output.
    origin
        Where its KV came from: the hot cache of an earlier turn, the prefix cache in memory (or a
        request that ran at the time), the disk; or it was computed, or generated.
    diverged
        It is the first that differs from the earlier turn that is most alike.
    """

    position: int
    token_id: int | None
    text: str
    role: str
    message: int | None
    origin: Origin
    diverged: bool


def token_rows(record: TurnRecord, decode: Decode, show_text: bool) -> Iterator[TokenRow]:
    """The tokens of a turn, in order.

    Raises
    ------
    UnknownTurn
        The ledger has dropped its tokens.
    """
    if record.usage.prompt_tokens and not record.prompt:
        raise UnknownTurn(f"the tokens of turn {record.turn_id!r} are not kept any more")
    texts: dict[int, str] = {}
    places = _places(record)
    for position, token in enumerate([*record.prompt, *record.output]):
        if show_text and token not in texts:
            texts[token] = decode([token])
        role, message = places.get(position, ("output", None))
        yield TokenRow(
            position,
            token if show_text else None,
            texts.get(token, ""),
            role,
            message,
            _origin(record, position),
            position == record.diverged_at,
        )


def _places(record: TurnRecord) -> dict[int, tuple[str, int | None]]:
    """The role and the message of each token of the prompt."""
    spans = ((span, position) for span in record.spans for position in range(span.start, span.end))
    known = {position: (span.role, span.message) for span, position in spans}
    return {p: known.get(p, ("template", None)) for p in range(len(record.prompt))}


def _origin(record: TurnRecord, position: int) -> Origin:
    if position >= len(record.prompt):
        return "generated"
    if position >= record.usage.cached_tokens:
        return "computed"
    if position < record.hot_tokens:
        return "hot"
    joined = record.usage.cached_tokens - record.joined_tokens
    return "disk" if joined - record.disk_tokens <= position < joined else "memory"


def tokens_frame(rows: Iterable[TokenRow]) -> pd.DataFrame:
    """One row a token."""
    return typed_frame(COLUMNS, ([getattr(row, name) for name in COLUMNS] for row in rows))
