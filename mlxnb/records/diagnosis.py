"""Why a turn computed tokens that it might have reused.

Compares its prompt with the earlier turns whose tokens are still kept. It knows what was sent,
not what the cache held: "evicted" is concluded from tokens that were computed once and then
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlxnb.records.divergence import Decode, Divergence, classify, divergence
from mlxnb.records.nearest import Run, longest, nearest, same_model
from mlxnb.records.spans import whole_messages
from mlxnb.records.turn import TurnRecord
from mlxnb.records.volatile import Change

__all__ = ["REASONS", "Diagnosis", "diagnose", "nearest"]

REASONS: dict[str, str] = {
    "first_turn": "There is no earlier turn of this model and salt to reuse anything from.",
    "new_conversation": "A new conversation: it shares only what stands before its first message.",
    "reuse_off": "This turn ran with reuse=False, which neither looks up nor files anything.",
    "not_rewindable": "This model's layers cannot be rewound: reuse ends at a checkpoint, "
    "such as a message's end.",
    "other_salt": "The same tokens were computed under another cache_salt, which is kept apart.",
    "other_model": "The same conversation was computed by another model or adapter.",
    "system_changed": "The system text is another one, so that nothing after it can be reused.",
    "system_volatile": "The system text holds what changes by itself; move that to the end.",
    "tools_changed": "The tool definitions are others, so that nothing after them can be reused.",
    "history_edited": "An earlier message of the conversation was edited, left out or put in.",
    "template_rewrote": "The chat template renders an earlier answer otherwise than it was "
    'generated; history="exact" avoids that.',
    "evicted": "The tokens had been computed and are not in the cache any more: it was short of "
    "bytes, their model was unloaded, or they were deleted.",
    "unfinished": "The earlier turn with these tokens has not ended, or was cancelled or failed.",
}
"""All values of ``miss_reason`` but NA (nothing that could be reused was missed)."""

Match = tuple[TurnRecord, int]
"""A turn and how many tokens it and the prompt begin with."""

_HEAD = 16
"""Tokens that two prompts may share by nature where their messages' borders are unknown."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a turn missed, and why.

    Parameters
    ----------
    reason
        A key of `REASONS`; None if nothing was missed that could have been reused.
    diverged_at
        Position of the first prompt token that differs from the turn it was compared with;
        None where one begins with the other.
    nearest_id, common_tokens
        The turn it was compared with, and how many tokens both begin with.
    tokens_lost
        Computed tokens that could have been reused: those after the first difference that are
        the same again (had it matched), or those that were computed before and not there.
    role, message
        Where the first difference lies; None where the messages' borders are unknown.
    change
        What changed by itself in the system text.
    resumes
        Where the prompt goes on with the same tokens after the first difference.
    """

    reason: str | None
    diverged_at: int | None = None
    nearest_id: str | None = None
    common_tokens: int = 0
    tokens_lost: int = 0
    role: str | None = None
    message: int | None = None
    change: Change | None = None
    resumes: Run | None = None


def diagnose(record: TurnRecord, earlier: Sequence[TurnRecord], decode: Decode) -> Diagnosis:
    """Compare a turn's prompt and its cached tokens with the turns before it.

    Parameters
    ----------
    record
        The turn; its ``prompt``, ``spans`` and ``usage.cached_tokens`` must be set.
    earlier
        Turns that started before it, oldest first.
    decode
        Token ids → text, of the turn's tokenizer.
    """
    if not record.prompt:  # dropped by the ledger: what was found then still stands
        return Diagnosis(record.miss_reason, record.diverged_at)
    own = longest(record, (other for other in earlier if _may_serve(other, record)))
    if not record.reuse_enabled:
        return _computed_before("reuse_off", record, nearest(record, earlier))
    if record.usage.cached_tokens >= len(record.prompt) - 1:
        return _against(record, own, decode=None)
    reason, elsewhere = _elsewhere(record, earlier, own)
    if elsewhere is not None and _gain(record, own, elsewhere) > _forgotten(record, own):
        return _computed_before(reason, record, elsewhere)
    if own is not None and _forgotten(record, own):
        return _computed_before(_forgotten_why(record, own[0]), record, own)
    if _session_changed_model(record, earlier):
        return _computed_before("other_model", record, own)
    if own is None:
        return Diagnosis(None if record.usage.cached_tokens else "first_turn")
    return _against(record, own, decode)


def _may_serve(other: TurnRecord, record: TurnRecord) -> bool:
    """Whether one turn's cache could have served the other."""
    return same_model(record, other) and other.salt == record.salt


def _against(record: TurnRecord, match: Match | None, decode: Decode | None) -> Diagnosis:
    """What differs from the nearest turn; without ``decode`` nothing was missed."""
    if match is None or record.usage.cached_tokens > match[1]:
        return Diagnosis(None)  # it reused more than any turn that is kept shares with it
    found = divergence(record, *match)
    if found is None or decode is None:
        return _diagnosis(None, record, match, found)
    reason, change = classify(found, decode)
    run, last = found.resumes, len(record.prompt) - 1
    lost = min(run.end, last) - run.start if run is not None else 0
    return replace(_diagnosis(reason, record, match, found), tokens_lost=lost, change=change)


def _computed_before(reason: str, record: TurnRecord, match: Match | None) -> Diagnosis:
    """A reason that lies in the cache and not in the tokens."""
    if match is None:
        return Diagnosis(reason)
    lost = max(0, _held(record, match) - record.usage.cached_tokens)
    found = divergence(record, *match)
    return replace(_diagnosis(reason, record, match, found), tokens_lost=lost)


def _diagnosis(
    reason: str | None, record: TurnRecord, match: Match, found: Divergence | None
) -> Diagnosis:
    """The comparison with one turn, as data."""
    place = found.place if found is not None else None
    return Diagnosis(
        reason,
        diverged_at=found.at if found is not None else None,
        nearest_id=match[0].turn_id,
        common_tokens=match[1],
        role=place.role if place is not None else None,
        message=place.message if place is not None else None,
        resumes=found.resumes if found is not None else None,
    )


# --- tokens that were computed before ------------------------------------------------------


def _held(record: TurnRecord, match: Match) -> int:
    """Prompt tokens whose KV the other turn had.

    The last token of an answer was never put in, and the last of a prompt is always computed.
    """
    other, common = match
    return min(common, len(record.prompt) - 1, len(other.prompt) + len(other.output) - 1)


def _forgotten(record: TurnRecord, own: Match | None) -> int:
    """Tokens that a turn of the same model and salt had and this one computed again."""
    if own is None or record.usage.cached_tokens >= min(own[1], len(record.prompt)) - 1:
        return 0
    held, cached = _held(record, own), record.usage.cached_tokens
    if not record.rewindable and not _worth(record, cached, held):
        return 0
    return held - cached


def _worth(record: TurnRecord, start: int, end: int) -> bool:
    """Whether anybody misses these tokens, where reuse ends at checkpoints: a message is there."""
    return end - start >= _HEAD or bool(whole_messages(record.spans, start, end))


def _forgotten_why(record: TurnRecord, other: TurnRecord) -> str:
    """Why the tokens of such a turn were not there."""
    if not record.rewindable:
        return "not_rewindable"
    whole = other.finish_reason not in (None, "cancelled", "error")
    return "evicted" if whole else "unfinished"


def _elsewhere(
    record: TurnRecord, earlier: Sequence[TurnRecord], own: Match | None
) -> tuple[str, Match | None]:
    """The longest match that was out of reach: under another salt, or in another model."""
    salted = longest(
        record, (o for o in earlier if same_model(record, o) and o.salt != record.salt)
    )
    alien = longest(record, (other for other in earlier if not same_model(record, other)))
    if _gain(record, own, salted) >= _gain(record, own, alien):
        return "other_salt", salted
    return "other_model", alien


def _gain(record: TurnRecord, own: Match | None, other: Match | None) -> int:
    """How many more tokens it shares, if a whole message is among them.

    What a template writes first is the same for all conversations: nobody misses that.
    """
    if other is None:
        return 0
    reached = max(record.usage.cached_tokens, own[1] if own is not None else 0)
    if record.spans:
        return other[1] - reached if whole_messages(record.spans, reached, other[1]) else 0
    return other[1] - reached if other[1] - reached >= _HEAD else 0


def _session_changed_model(record: TurnRecord, earlier: Sequence[TurnRecord]) -> bool:
    """Whether the session's previous turn ran on another model (whose ids may be others)."""
    before = (o for o in reversed(earlier) if o.session == record.session and o is not record)
    previous = next(before, None) if record.session is not None else None
    return previous is not None and not same_model(record, previous)
