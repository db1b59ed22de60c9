"""What a turn did when, from its arrival on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mlxnb.records.frames import typed_frame
from mlxnb.records.turn import Timing, TurnRecord

if TYPE_CHECKING:
    import pandas as pd

Phase = Literal["pre_inference", "resolve", "load_wait", "queue", "prefill", "decode"]
COLUMNS: dict[str, str] = {
    "phase": "string",
    "start_s": "float64",
    "end_s": "float64",
    "tokens": "Int64",
}


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A stretch of a turn.

    Attributes
    ----------
    start_s, end_s
        Seconds since the turn arrived.
    tokens
        Tokens that were computed or generated in it.
    """

    phase: Phase
    start_s: float
    end_s: float
    tokens: int


def phase_rows(record: TurnRecord) -> Iterator[PhaseRow]:
    """What a turn did, in order: a row a phase, a prefill chunk and a generated token.

    The last chunk of a prefill is the prompt's last token, which gives the first one of the answer.
    A row whose tokens the ledger has dropped has its phases alone.
    """
    yield from _before(record.timing)
    if record.prompt or not record.usage.prompt_tokens:
        yield from _prefill(record)
        yield from _decode(record)
    else:
        yield from _whole(record)


def _before(timing: Timing) -> Iterator[PhaseRow]:
    """What comes before the prompt is computed."""
    now = 0.0
    phases: list[tuple[Phase, float]] = [
        ("pre_inference", timing.pre_inference_s),
        ("resolve", timing.resolve_s),
        ("load_wait", timing.load_wait_s),
        ("queue", timing.queue_s),
    ]
    for phase, seconds in phases:
        yield PhaseRow(phase, now, now + seconds, 0)
        now += seconds


def _admitted(timing: Timing) -> float:
    return timing.pre_inference_s + timing.resolve_s + timing.load_wait_s + timing.queue_s


def _prefill(record: TurnRecord) -> Iterator[PhaseRow]:
    """Each chunk up to the next one's begin, the last one up to the first token."""
    end, instants = _admitted(record.timing), record.instants
    for begin, seconds, tokens in record.chunks:
        end = begin + seconds
        yield PhaseRow("prefill", begin, end, tokens)
    if instants:
        yield PhaseRow("prefill", end, max(end, instants[0]), 1)


def _decode(record: TurnRecord) -> Iterator[PhaseRow]:
    earlier = record.instants[0] if record.instants else 0.0
    for instant in record.instants:
        yield PhaseRow("decode", earlier, instant, 1)
        earlier = instant


def _whole(record: TurnRecord) -> Iterator[PhaseRow]:
    timing, usage = record.timing, record.usage
    begin = _admitted(timing)
    first = begin + timing.prefill_s
    yield PhaseRow("prefill", begin, first, usage.prefill_tokens)
    yield PhaseRow("decode", first, first + timing.decode_s, usage.output_tokens)


def timeline_frame(rows: Iterable[PhaseRow]) -> pd.DataFrame:
    """One row a stretch."""
    return typed_frame(COLUMNS, ([getattr(row, name) for name in COLUMNS] for row in rows))
