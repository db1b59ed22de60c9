"""A turn as data: its clock, its usage, what it reused, and what was said.

Knows nothing of how a turn was computed. All times are seconds.
"""

from __future__ import annotations

import datetime as dt
import time
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mlxnb.records.alternative import Alternative, alternatives_frame

if TYPE_CHECKING:
    import pandas as pd

Source = Literal["magic", "widget", "python", "responses", "messages", "chat_completions"]
NOTEBOOK = ("magic", "widget", "python")
"""Sources of turns whose texts a notebook shows anyway."""
CacheStatus = Literal["fresh", "hit", "prefix_hit", "cold_replay"]
FinishReason = Literal["stop", "stop_sequence", "length", "tool_calls", "cancelled", "error"]

Reader = Callable[["Turn"], "Reading"]
"""Reads an answer's text."""


@dataclass(slots=True)
class Clock:
    """Instants of a turn on ``time.perf_counter``'s scale; None: not reached.

    arrived → validated → (resolved: its model is loaded) → queued → admitted → first_token →
    last_token. The phases between them add up to ``total_s``.
    """

    arrived: float = field(default_factory=time.perf_counter)
    validated: float | None = None
    queued: float | None = None
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    resolve_s: float = 0.0
    load_wait_s: float = 0.0
    load_owner: bool = False

    def timing(self, ended: float) -> Timing:
        """The phases of a turn that ended at ``ended``; a phase not reached takes 0 s."""
        last = self.last_token if self.last_token is not None else ended
        first = self.first_token if self.first_token is not None else last
        admitted = self.admitted if self.admitted is not None else first
        queued = self.queued if self.queued is not None else admitted
        loading = self.resolve_s + self.load_wait_s
        return Timing(
            pre_inference_s=max(0.0, queued - self.arrived - loading),
            resolve_s=self.resolve_s,
            load_wait_s=self.load_wait_s,
            load_owner=self.load_owner,
            queue_s=admitted - queued,
            prefill_s=first - admitted,
            decode_s=last - first,
            ttft_s=None if self.first_token is None else first - self.arrived,
            total_s=last - self.arrived,
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """Phases of one turn in seconds.

    ``pre_inference_s + resolve_s + load_wait_s + queue_s + prefill_s + decode_s == total_s``;
    ``ttft_s`` runs from arrival to the first token and is None where there was none.
    """

    pre_inference_s: float = 0.0
    resolve_s: float = 0.0
    load_wait_s: float = 0.0
    load_owner: bool = False
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    ttft_s: float | None = None
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one turn. ``prompt_tokens == cached_tokens + prefill_tokens``, always.

    ``output_tokens`` counts every generated token, the end token and the reasoning included.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def total_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model made: ``arguments`` is the parsed JSON object."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens ``[start, end)`` of a prompt that belong to message number ``message``.

    ``role`` is system | user | assistant | tool, or template for what the template writes
    between messages (``message`` is then the one that follows).
    """

    start: int
    end: int
    role: str
    message: int


@dataclass(slots=True)
class TurnRecord:
    """One row of the turns frame, and what ``explain`` needs beside it.

    ``prompt`` and ``output`` are token ids (``array('I')``); a ledger may drop them from old
    rows (then both are empty and ``explain`` says so).
    """

    turn_id: str
    session: str | None
    model: str
    source: Source
    host: str
    started_at: dt.datetime
    fingerprint: str = ""
    salt: str = ""
    cache: CacheStatus = "fresh"
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    saved_s: float | None = None
    finish_reason: FinishReason | None = None
    miss_reason: str | None = None
    diverged_at: int | None = None
    error: str | None = None
    # beyond the fixed columns (turns(wide=True))
    seed: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    batch_joins: int = 0
    copied_bytes: int = 0
    recomputed_tokens: int = 0
    decode_inputs: int = 0
    prefill_chunks: int = 0
    joined_tokens: int = 0
    disk_tokens: int = 0
    hot_tokens: int = 0
    reuse_enabled: bool = True
    rewindable: bool = True
    history: str = "exact"
    adapter: str = ""  # of the adapter's weights, where the fingerprint does not cover them
    tools: str = ""  # a digest of the tool definitions; empty without tools
    caller: str = ""  # who asked over HTTP: ``jupyter:`` or ``key:`` and a name; never the key
    # for explain
    prompt: array[int] = field(default_factory=lambda: array("I"))
    output: array[int] = field(default_factory=lambda: array("I"))
    spans: list[Span] = field(default_factory=list)
    # for the timeline: seconds since arrival
    chunks: list[tuple[float, float, int]] = field(default_factory=list)  # begin, length, tokens
    instants: array[float] = field(default_factory=lambda: array("d"))  # of each output token


def shows_text(asked: bool | None, records: Iterable[TurnRecord]) -> bool:
    """Whether texts of these turns are shown: as asked, else if notebooks show all of them."""
    return all(record.source in NOTEBOOK for record in records) if asked is None else asked


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer's text says in a form of its own, or why it says nothing."""

    value: Any = None
    fault: str | None = None


@dataclass(slots=True, repr=False)
class Turn:
    """One request and its answer, as the user sees it.

    ``text`` is the visible answer, ``reasoning`` what stood between think tags, ``tool_calls``
    the parsed calls. After an interrupt or an error they hold what was there by then.
    """

    id: str
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_sequence: str | None = None
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    tokens: list[int] = field(default_factory=list)
    model: str = ""
    session: str | None = None
    error: str | None = None
    choices: list[Turn] = field(default_factory=list)
    alternatives: list[list[Alternative]] = field(default_factory=list)
    reader: Reader | None = field(default=None, compare=False)
    read: Reading | None = field(default=None, compare=False)

    @property
    def ended_well(self) -> bool:
        """Whether there is a whole answer, which its session keeps."""
        return self.finish_reason not in ("cancelled", "error")

    @property
    def parsed(self) -> Any:
        """The answer as the ``schema`` that was given has it; None: see ``invalid``."""
        return self._reading.value

    @property
    def invalid(self) -> str | None:
        """Why there is nothing in ``parsed`` though a schema was given; else None."""
        return self._reading.fault

    @property
    def _reading(self) -> Reading:
        """What the text says; read when it is first asked for, by whoever asks."""
        if self.read is None:
            self.read = Reading() if self.reader is None else self.reader(self)
        return self.read

    @property
    def logprobs(self) -> pd.DataFrame | None:
        """The answer's tokens and what they were drawn from, a row each; None: not asked for.

        Columns: ``position`` (of the answer's tokens), ``token_id``, ``token``, ``logprob``,
        ``rank`` (how many are likelier), ``taken``.
        """
        return alternatives_frame(self.alternatives) if self.alternatives else None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, reused ones included."""
        return self.usage.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose KV was reused."""
        return self.usage.cached_tokens

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return self.usage.prefill_tokens

    @property
    def output_tokens(self) -> int:
        """Generated tokens, the end token included."""
        return self.usage.output_tokens

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        """Deterministic: no id, no times."""
        shown = self.text if len(self.text) <= 60 else self.text[:59] + "…"
        return (
            f"Turn({shown!r}, finish_reason={self.finish_reason!r}, "
            f"prompt_tokens={self.prompt_tokens}, cached_tokens={self.cached_tokens}, "
            f"output_tokens={self.output_tokens})"
        )
