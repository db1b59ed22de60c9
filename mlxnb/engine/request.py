"""A request: tokens in, events out. Filled in by the engine's thread, read by the one who waits."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlxnb.cache.live import Live
from mlxnb.cache.plan import Plan
from mlxnb.engine.events import Done, Event, Prefill
from mlxnb.engine.logprobs import Choice
from mlxnb.engine.sampling import Processor, Sampler, Sampling
from mlxnb.errors import DetokenizerFailed
from mlxnb.records.alternative import Alternative
from mlxnb.records.tokens import pack
from mlxnb.records.turn import CacheStatus, Clock, FinishReason, TurnRecord
from mlxnb.text.answer import AnswerMachine, Piece

if TYPE_CHECKING:
    import mlx.core as mx

    from mlxnb.engine.lane import Lane


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way to an answer.

    ``reuse=False`` neither looks up nor files. ``prefill_only`` ends when the prompt's KV is
    there. ``owner`` is the session that continues the KV afterwards. ``marks`` are positions of the
    prompt that later prompts are likely to share. ``cancelled`` may be set by
    any thread; the engine sees it within one step. ``reached`` is the number of tokens, prompt
    and output, whose KV was computed or reused so far; ``cached`` is what was
    reused, None before the start, and ``planned`` what had been promised. ``alone``: it shares no
    batch. ``number`` counts arrivals. ``listener`` takes the events as they are made, in place of
    the queue ``events``; it must not block or raise. ``status`` is what a client has been told of
    the reuse; None: what the plan says in the end. ``choices`` are what each generated token was
    drawn from, where that is wanted.
    """

    model: str
    prompt: list[int]
    sampling: Sampling
    record: TurnRecord
    machine: AnswerMachine
    detokenizer: Any
    end_tokens: frozenset[int]
    salt: str = ""
    owner: str | None = None
    marks: tuple[int, ...] = ()
    reuse: bool = True
    prefill_only: bool = False
    extra_processors: list[Processor] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    listener: Callable[[Event], None] | None = None
    status: CacheStatus | None = None
    cancelled: bool = False
    # the engine's own
    plan: Plan | None = None
    live: Live | None = None
    sampler: Sampler | None = None
    processors: list[Processor] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    lane: Lane | None = None
    number: int = 0
    planned: int = 0
    cached: int | None = None
    reached: int = 0
    reasoning_tokens: int = 0
    setbacks: int = 0
    alone: bool = False
    choices: list[list[Alternative]] = field(default_factory=list)
    ending: FinishReason | None = None
    error: Exception | None = None
    done: bool = False
    ends: threading.Lock = field(default_factory=threading.Lock)

    def choice(self, logprobs: mx.array, drawn: mx.array | int) -> Choice | None:
        """What a token was drawn from, ``(vocab,)`` or ``(1, vocab)``, if that is wanted."""
        count = self.sampling.logprobs
        return None if count is None else Choice.of(logprobs.reshape(-1), drawn, count)

    @property
    def tokens(self) -> list[int]:
        """Prompt and what has been generated."""
        return self.prompt + self.generated

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        assert self.sampling.max_tokens is not None
        return self.sampling.max_tokens - len(self.generated)

    @property
    def fault(self) -> Exception | None:
        """What its sampler or a processor of its raised."""
        fault = self.sampler.fault if self.sampler is not None else None
        for processor in self.processors:
            fault = fault or processor.fault
        return fault

    def fed(self, tokens: list[int]) -> None:
        """Note that these tokens' KV is now in the live cache."""
        assert self.live is not None
        start = self.live.length
        end = start + len(tokens)
        self.live.tokens += pack(tokens)
        if start < self.reached:
            self.record.recomputed_tokens += min(self.reached, end) - start
        if end > self.reached:
            self.reached = end

    def catch_up(self) -> None:
        """Note that all tokens there are have their KV (a batch feeds a token as it gives it)."""
        assert self.live is not None
        output = self.live.length - len(self.prompt)
        if output < 0:
            self.fed(self.prompt[output:])
            output = 0
        self.fed(self.generated[output:])

    def fail(self, error: Exception) -> None:
        """End this request with an error at the next occasion."""
        self.ending, self.error = "error", error

    def _tell(self, event: Event) -> None:
        (self.listener or self.events.put)(event)

    def progress(self) -> None:
        """Tell how much of the prompt has its KV."""
        assert self.live is not None
        done = min(self.live.length, len(self.prompt))
        self._tell(Prefill(done, len(self.prompt), self.cached or 0))

    def accept(self, token: int) -> None:
        """Take a generated token: text goes out, and ``ending`` is set if it was the last."""
        self.clock.last_token = time.perf_counter()
        if self.clock.first_token is None:
            self.clock.first_token = self.clock.last_token
        self.generated.append(token)
        self.record.instants.append(self.clock.last_token - self.clock.arrived)
        if token in self.end_tokens:
            self.ending = "stop"
            return
        self.reasoning_tokens += self.machine.in_reasoning
        self._hear(lambda: self.detokenizer.add_token(token))
        if self.machine.stop_sequence is not None:
            self.ending = "stop_sequence"
        elif self.machine.complete:
            self.ending = "stop"
        elif self.remaining <= 0:
            self.ending = "length"

    def _hear(self, add: Callable[[], None]) -> None:
        """Tell the text that the detokenizer has then.

        Raises
        ------
        DetokenizerFailed
            It raised: what stands behind this token can be shown no more.
        """
        try:
            add()
            segment = self.detokenizer.last_segment
        except Exception as error:
            raise DetokenizerFailed(
                f"the tokenizer of {self.model} failed ({type(error).__name__}) at token "
                f"{len(self.generated)} of the answer; its files may be incomplete: load the model "
                "again, or try another one"
            ) from error
        self._emit(self.machine.feed(segment))

    def _emit(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._tell(piece)

    def close_text(self, reason: FinishReason) -> FinishReason:
        """Release what text was held back; tool calls that ended the answer name the reason."""
        if self.machine.stop_sequence is None:
            self._hear(self.detokenizer.finalize)
        self._emit(self.machine.finish(cut=reason != "stop"))
        if self.machine.stop_sequence is not None and reason in ("stop", "length"):
            return "stop_sequence"
        if reason == "stop" and self.machine.tool_calls:
            return "tool_calls"
        return reason

    def begin_end(self) -> bool:
        """Whether the caller is to end this request: True for the first who asks, on any thread."""
        return self.ends.acquire(blocking=False)

    def finish(self, reason: FinishReason, error: Exception | None) -> None:
        """Tell the end, once."""
        assert not self.done, "a request ends once"
        self.done = True
        self._tell(Done(reason, error))
