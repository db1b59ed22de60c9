"""One turn explained: what was reused, where it left an earlier turn, and the likely cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlxnb.records.diagnosis import REASONS, Diagnosis, diagnose
from mlxnb.records.divergence import Decode
from mlxnb.records.explain_html import report
from mlxnb.records.frames import typed_frame
from mlxnb.records.segments import Segment, segments_of
from mlxnb.records.turn import TurnRecord

if TYPE_CHECKING:
    import pandas as pd

CONTEXT = 20
"""Tokens shown on both sides of the first difference."""
COLUMNS: dict[str, str] = {
    "segment": "Int64",
    "start": "Int64",
    "end": "Int64",
    "tokens": "Int64",
    "role": "string",
    "message": "Int64",
    "source": "string",
    "note": "string",
    "text": "string",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference: up to `CONTEXT` tokens before it, and from it on on both sides."""

    position: int
    context_tokens: tuple[int, ...]
    context: str
    tokens: tuple[int, ...]
    text: str
    earlier_tokens: tuple[int, ...]
    earlier_text: str


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What became of each token of a prompt, and why.

    Parameters
    ----------
    reason
        As ``miss_reason`` in the turns frame; None if nothing was missed.
    likely_cause
        The reason in a sentence.
    diverged_at
        Position of the first prompt token that differs from ``nearest_id``'s tokens.
    tokens_lost
        How many computed tokens could have been reused had it matched.
    first_difference
        Token ids and texts there; None without a difference, or without texts.
    """

    turn_id: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    reason: str | None
    likely_cause: str
    nearest_id: str | None
    common_tokens: int
    diverged_at: int | None
    role: str | None
    message: int | None
    tokens_lost: int
    first_difference: Difference | None
    segments: tuple[Segment, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row a segment: segment, start, end, tokens, role, message, source, note, text."""
        rows = (
            (number, s.start, s.end, s.end - s.start, s.role, s.message, s.source, s.note, s.text)
            for number, s in enumerate(self.segments)
        )
        return typed_frame(COLUMNS, rows)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Name and value of what is known, in order of reading."""
        facts = [
            ("turn", f"{self.turn_id} ({self.model})"),
            (
                "prompt",
                f"{_tokens(self.prompt_tokens)}: {self.cached_tokens:,} reused, "
                f"{self.prompt_tokens - self.cached_tokens:,} computed",
            ),
            ("reason", self.reason or "nothing was missed"),
            ("cause", self.likely_cause),
        ]
        if self.nearest_id is not None:
            facts.append(("compared with", f"{self.nearest_id}: {self._comparison()}"))
        if self.tokens_lost:
            behind = self.cached_tokens + self.tokens_lost > self.common_tokens
            why = (
                "behind the difference that are the same again: without it they would be reused"
                if behind
                else "that otherwise could have been reused"
            )
            facts.append(("lost", f"{_tokens(self.tokens_lost)} {why}"))
        return facts

    def _comparison(self) -> str:
        """How far the two go together."""
        together = f"the first {_tokens(self.common_tokens)} are the same"
        if self.diverged_at is None:
            return together
        place = "" if self.role is None else f", in message {self.message} ({self.role})"
        return f"{together}, the next differs{place}"

    def __repr__(self) -> str:
        """Plain text without times: the same for the same turns."""
        lines = [f"{name}: {value}" for name, value in self.facts]
        found = self.first_difference
        if found is not None:
            lines += [
                f"before it:  {found.context!r}",
                f"{self.turn_id} has: {found.text!r}",
                f"{self.nearest_id} had: {found.earlier_text!r}",
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return report(self)


def explain(
    record: TurnRecord, earlier: Sequence[TurnRecord], decode: Decode, show_text: bool = True
) -> Explanation:
    """Explain a turn against the turns before it.

    Parameters
    ----------
    record
        The turn. If the ledger has dropped its tokens, what was found then is reported.
    earlier
        Turns that started before it, oldest first.
    decode
        Token ids → text, of the turn's tokenizer.
    show_text
        False: counts, roles and reasons only, no text and no token ids of any prompt.
    """
    found = _settled(record, diagnose(record, earlier, decode))
    other = next((o for o in earlier if o.turn_id == found.nearest_id), None)
    segments = tuple(segments_of(record, found, decode if show_text else None))
    difference = None
    if show_text and other is not None and found.diverged_at is not None:
        difference = _difference(record, other, found.diverged_at, decode)
    return Explanation(
        turn_id=record.turn_id,
        model=record.model,
        prompt_tokens=len(record.prompt) or record.usage.prompt_tokens,
        cached_tokens=record.usage.cached_tokens,
        reason=found.reason,
        likely_cause=_cause(record, found, show_text),
        nearest_id=found.nearest_id,
        common_tokens=found.common_tokens,
        diverged_at=found.diverged_at,
        role=found.role,
        message=found.message,
        tokens_lost=found.tokens_lost,
        first_difference=difference,
        segments=segments,
    )


def _settled(record: TurnRecord, found: Diagnosis) -> Diagnosis:
    """What was found when the turn ended, where the turn that told it is gone by now."""
    if record.miss_reason is None or record.miss_reason == found.reason:
        return found
    return Diagnosis(record.miss_reason, record.diverged_at)


def _cause(record: TurnRecord, found: Diagnosis, show_text: bool) -> str:
    """The reason as a sentence, with what changed."""
    if found.reason is None:
        return "Nothing that could have been reused was missed."
    cause = REASONS.get(found.reason, found.reason)
    if found.change is not None:
        kind = f"{'an' if found.change.kind == 'id' else 'a'} {found.change.kind}"
        values = f": {found.change.before!r} became {found.change.after!r}" if show_text else ""
        cause += f" It is {kind}{values}."
    if found.nearest_id is None and found.reason not in ("first_turn", "reuse_off"):
        cause += " The tokens that told it are no longer kept."
    return cause


def _tokens(count: int) -> str:
    """A count with its unit."""
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"


def _difference(record: TurnRecord, other: TurnRecord, at: int, decode: Decode) -> Difference:
    """Ids and texts around the first token that differs."""
    context = record.prompt[max(0, at - CONTEXT) : at]
    ours = record.prompt[at : at + CONTEXT]
    theirs = (other.prompt + other.output)[at : at + CONTEXT]
    return Difference(
        position=at,
        context_tokens=tuple(context),
        context=decode(context.tolist()),
        tokens=tuple(ours),
        text=decode(ours.tolist()),
        earlier_tokens=tuple(theirs),
        earlier_text=decode(theirs.tolist()),
    )
