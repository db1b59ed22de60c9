"""A conversation that owns its token history."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mlxnb.engine.request import Request
from mlxnb.engine.sampling import Sampling
from mlxnb.errors import (
    InvalidOption,
    PendingToolCalls,
    SessionBusy,
    UnknownToolCall,
)
from mlxnb.records.tokens import common_prefix, pack
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.history import History
from mlxnb.sessions.kept import kept_output
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.template import ChatTemplate, Message, Rendered

if TYPE_CHECKING:
    from mlxnb.sessions.local import LocalEngine

HistoryKind = Literal["exact", "template"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a session was made with; two sessions of one name must agree on it."""

    model: str
    system: str | None = None
    tools: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    history: HistoryKind = "exact"
    reuse: bool = True
    cache_salt: str = ""
    thinking: bool | None = None

    def tool_list(self) -> list[Any] | None:
        """The tools as the template takes them."""
        return [json.loads(tool) for tool in self.tools] or None


class Session:
    """A conversation with one model. Made by ``engine().session(...)``.

    One turn at a time; ``send`` and its kin may be called from any thread.
    """

    def __init__(self, engine: LocalEngine, name: str, options: Options) -> None:
        self.name = name
        self.options = options
        self.created_at = self.last_used = dt.datetime.now(dt.UTC)
        self.forked_from: str | None = None
        self.last: Turn | None = None
        self._engine = engine
        self._busy = threading.Lock()
        self._history = History()
        self._results: dict[str, Message] = {}
        self._key: str | None = None
        self._begin()

    def _begin(self) -> None:
        system = self.options.system
        self._history = History([{"role": "system", "content": system}] if system else [])
        self._results = {}

    def __repr__(self) -> str:
        return f"Session({self.name!r}, model={self.model!r}, turns={self._history.turns})"

    @property
    def model(self) -> str:
        """The name of its model."""
        return self.options.model

    @property
    def history(self) -> list[Message]:
        """The messages of the turns that ended well, in the chat template's form; a copy."""
        return [dict(message) for message in self._history.messages]

    @property
    def tokens(self) -> list[int]:
        """The tokens that the next prompt begins with; empty with template history."""
        return list(self._history.tokens)

    @property
    def turns(self) -> int:
        """Turns that ended well."""
        return self._history.turns

    # --- turns --------------------------------------------------------------------------------

    def send(self, text: str, **sampling: Any) -> Turn:
        """Say something and wait for the answer.

        Parameters
        ----------
        text
            What the user says, verbatim.
        **sampling
            ``temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
            frequency_penalty, logit_bias, seed, max_tokens, stop, n`` for this turn alone. With
            ``n`` the other answers are on ``Turn.choices``; the first one is continued.

        Raises
        ------
        ContextOverflow
            The prompt is longer than the model's context; nothing was touched.
        PendingToolCalls
            Results of tool calls must be sent first.
        QueueFull, SessionBusy
            Too much is going on.
        RequestFailed
            The turn ended in an error; the history is as it was.
        """
        return self.reply(text, **sampling).result()

    def stream(self, text: str, **sampling: Any) -> Iterator[Delta | Turn]:
        """As ``send``, giving each piece as it is generated and last the turn."""
        return self._stream(self.reply(text, **sampling))

    @staticmethod
    def _stream(reply: Reply) -> Iterator[Delta | Turn]:
        yield from reply.deltas()
        assert reply.turn is not None
        yield reply.turn

    async def asend(self, text: str, **sampling: Any) -> Turn:
        """As ``send``; cancelling the task stops the answer."""
        reply = await asyncio.to_thread(self.reply, text, **sampling)
        try:
            return await asyncio.shield(asyncio.to_thread(reply.result))
        except asyncio.CancelledError:
            reply.cancel()
            raise

    async def astream(self, text: str, **sampling: Any) -> AsyncIterator[Delta | Turn]:
        """As ``stream``; closing the iterator stops the answer."""
        reply = await asyncio.to_thread(self.reply, text, **sampling)
        pieces = self._stream(reply)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        finally:
            if reply.turn is None:
                reply.cancel()

    def send_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> Turn | None:
        """Give the result of a tool call; when the last one is there, the model goes on.

        Returns
        -------
        Turn or None
            The model's next turn; None while results are outstanding.

        Raises
        ------
        UnknownToolCall
            No such call is outstanding.
        """
        pending = self._history.pending
        if call_id not in pending:
            there = ", ".join(pending) or "none"
            raise UnknownToolCall(f"no call {call_id!r} is outstanding (outstanding: {there})")
        self._results[call_id] = _tool_message(call_id, pending[call_id], content, is_error)
        if len(self._results) < len(pending):
            return None
        results = [self._results[call] for call in pending]
        return self._reply(results, Sampling(), "python").result()

    def reply(self, text: str, source: Source = "python", **sampling: Any) -> Reply:
        """As ``send``, returning at once: the answer's events can be followed and cancelled."""
        if not isinstance(text, str):
            raise InvalidOption(f"a message is a string, not {type(text).__name__}")
        if self._history.pending:
            names = ", ".join(f"{n} ({i})" for i, n in self._history.pending.items())
            raise PendingToolCalls(f"send_tool_result is due for: {names}")
        return self._reply([{"role": "user", "content": text}], Sampling.of(sampling), source)

    def _reply(self, new: list[Message], sampling: Sampling, source: Source) -> Reply:
        if not self._busy.acquire(blocking=False):
            raise SessionBusy(f"the session {self.name!r} is answering already; use another one")
        try:
            return self._engine.start(self, new, sampling.over(self.options.sampling), source)
        except BaseException:
            self._busy.release()
            raise

    # --- what the engine asks -----------------------------------------------------------------

    def render(self, new: list[Message], template: ChatTemplate, key: str, ends: frozenset[int]) -> Rendered:
        """The prompt of the next turn, for the model whose content is ``key``."""
        if self._key not in (None, key):
            self._history.forget_tokens()
        self._key = key
        return self._history.prompt(new, template, self.options.tool_list(), ends)

    def head(self, template: ChatTemplate, key: str, ends: frozenset[int]) -> Rendered:
        """What every next prompt begins with: the tokens that two different messages share."""
        tries = [
            self.render([{"role": "user", "content": text}], template, key, ends)
            for text in ("Alpha", "zulu")
        ]
        shared = common_prefix(pack(tries[0].tokens), pack(tries[1].tokens))
        spans = [replace(s, end=min(s.end, shared)) for s in tries[0].spans if s.start < shared]
        return Rendered(tries[0].tokens[:shared], spans, False)

    def settle(self, new: list[Message], prompt: Rendered, request: Request, turn: Turn) -> None:
        """Take an ended turn: a good one into the history, any other only as ``last``."""
        self.last, self.last_used = turn, dt.datetime.now(dt.UTC)
        if turn.finish_reason not in ("cancelled", "error"):
            exact = self.options.history == "exact"
            output = kept_output(request, self._engine.template(self).encode) if exact else []
            self._history.commit(new, prompt, output, _answer(turn), exact)
            self._history.await_results(turn.tool_calls)
            self._results = {}
        self._busy.release()

    # --- the conversation as a whole ----------------------------------------------------------

    def fork(self, name: str | None = None) -> Session:
        """A new session with the same past; both share all KV that is there."""
        other = self._engine.adopt(name or self._engine.free_name(f"{self.name}-fork"), self.options)
        other._history, other._key = self._history.copy(), self._key
        other._results, other.forked_from = dict(self._results), self.name
        return other

    def rewind(self, turns: int = 1) -> None:
        """Take back the last turns; what stays is not computed again.

        Raises
        ------
        InvalidOption
            There are fewer turns.
        """
        if not 0 < turns <= self.turns:
            raise InvalidOption(f"the session has {self.turns} turns; {turns} cannot be taken back")
        self._history.rewind(turns)
        self._results = {}

    def reset(self) -> None:
        """Forget everything that was said; the system text stays."""
        self._begin()


def _answer(turn: Turn) -> Message:
    """The assistant's message in the chat template's form."""
    message: Message = {"role": "assistant", "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in turn.tool_calls
        ]
    return message


def _tool_message(call_id: str, name: str, content: Any, is_error: bool) -> Message:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    if is_error:
        text = f"[tool error] {text}"
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}
