"""An answer to a request of a door: begun, followed from any thread, and ended exactly once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from mlxnb.engine.events import Event
from mlxnb.engine.request import Request
from mlxnb.records.turn import CacheStatus, FinishReason, Turn, TurnRecord, Usage
from mlxnb.sessions import views
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.messages import Message, answer_message
from mlxnb.sessions.serving.conversation import Conversation
from mlxnb.sessions.serving.prompt import Prompt
from mlxnb.sessions.serving.track import Track
from mlxnb.sessions.texts import Texts

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]


class Answer:
    """What comes of an `Ask`. Its numbers are those that hold before anything is sent.

    Parameters
    ----------
    on_end
        Called once, when ``turn`` is there and before ``Done`` is handed out.
    abandon
        Ends a request that the engine does not have.

    Attributes
    ----------
    response_id
        ``resp_{host}_{random}``.
    created
        Seconds since 1970.
    cached_tokens
        Tokens of the prompt that are pinned for it: it reuses these at least.
    cache
        How they were found.
    tuning
        What the engine runs it with.
    turn
        None until it has ended.
    said, track
        The answer as a message, and the conversation's tokens with it; None until it has ended
        well. No tokens are kept where tool markup was left out of the text (W37).
    gate
        To be held while it is queued or ended without having been.
    queued
        The engine has it.
    settled
        Set when it is known whether it can be continued by its id.
    """

    def __init__(
        self,
        ask: Ask,
        response_id: str,
        texts: Texts,
        conversation: Conversation,
        prompt: Prompt,
        request: Request,
        on_end: Callable[[Answer], None],
        abandon: Callable[[Request, FinishReason, Exception | None], None],
    ) -> None:
        self.ask, self.response_id = ask, response_id
        self.texts, self.conversation, self.prompt = texts, conversation, prompt
        self.request = request
        self.created = int(time.time())
        self.cached_tokens = 0
        self.cache: CacheStatus = conversation.status(prompt, 0)
        self.tuning: Mapping[str, float] = {}
        self.turn: Turn | None = None
        self.said: Message | None = None
        self.track: Track | None = None
        self.gate = threading.RLock()
        self.queued = False
        self.settled = threading.Event()
        self._on_end, self._abandon = on_end, abandon
        self._telling = threading.RLock()
        self._events: list[Event] = []
        self._listeners: list[Listener] = []
        request.listener = self._tell

    @property
    def id(self) -> str:
        """The turn's id."""
        return self.record.turn_id

    @property
    def record(self) -> TurnRecord:
        """The turn's row; whole when it has ended."""
        return self.request.record

    @property
    def asked_model(self) -> str:
        """The name that the client gave the model."""
        return self.ask.model

    @property
    def model(self) -> str:
        """The model's own name."""
        return self.texts.name

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return len(self.request.prompt)

    @property
    def max_tokens(self) -> int:
        """Tokens that it may have."""
        return self.request.sampling.max_tokens or 0

    @property
    def error(self) -> Exception | None:
        """What went wrong."""
        return self.request.error

    @property
    def committed(self) -> bool:
        """Whether it has ended well, and was not given up."""
        turn = self.turn
        return turn is not None and turn.ended_well

    @property
    def heard(self) -> tuple[Message, ...]:
        """What is answered: all messages but the beginning of the answer itself."""
        messages = self.conversation.messages
        return messages[:-1] if self.ask.continues_answer else messages

    # --- the client's side --------------------------------------------------------------------

    def follow(self, listener: Listener) -> None:
        """Hand every event, those that have been and those to come, to a function; last `Done`.

        It is called on whatever thread makes an event, and must not block.
        """
        with self._telling:
            for event in self._events:
                _hand(listener, event)
            self._listeners.append(listener)

    def cancel(self) -> None:
        """Stop within one step. Any thread may call, at any time."""
        with self.gate:
            self.request.cancelled = True
            if not self.queued:
                self._abandon(self.request, "cancelled", None)

    def fail(self, error: Exception) -> None:
        """End it with an error before the engine has it."""
        with self.gate:
            if not self.queued:
                self._abandon(self.request, "error", error)

    # --- the engine's side --------------------------------------------------------------------

    def plan(self, cached: int, tuning: Mapping[str, float]) -> None:
        """Take down what is pinned for it, as its row, its headers and its usage will say."""
        self.cached_tokens, self.tuning = cached, tuning
        self.cache = self.conversation.status(self.prompt, cached)
        self.request.status = self.record.cache = self.cache
        self.record.usage = Usage(self.prompt_tokens, cached)

    def ended(self, request: Request) -> None:
        """Its row is complete."""
        self.turn = views.turn_of(request)
        try:
            if self.committed:
                self._conclude(self.turn)
            self._on_end(self)
        except Exception:
            log.exception("the end of answer %s was not seen to", self.response_id)

    def _conclude(self, turn: Turn) -> None:
        said = answer_message(turn)
        if self.ask.continues_answer:
            said["content"] = f"{self.conversation.messages[-1]['content']}{said['content']}"
        self.said = said
        if not self.request.machine.suppressed_markup:
            self.track = self.prompt.track(self.request, turn)

    def _tell(self, event: Event) -> None:
        with self._telling:
            self._events.append(event)
            for listener in self._listeners:
                _hand(listener, event)


def _hand(listener: Listener, event: Event) -> None:
    try:
        listener(event)
    except Exception:
        log.exception("a listener failed")
