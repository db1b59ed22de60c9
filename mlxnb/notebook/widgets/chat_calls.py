"""Calls of functions in a chat: asked about on the page, made on the kernel's main thread."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, Literal

from mlxnb.notebook.captured import Captured
from mlxnb.notebook.main_thread import Errand
from mlxnb.records.turn import ToolCall
from mlxnb.sessions.function import cut
from mlxnb.sessions.toolbox import Consent, Outcome

Pending = dict[str, Any]
"""A call for the front end: ``id``, ``name``, ``arguments`` as JSON, and its ``state``."""
Printed = dict[str, Any]
"""What a function has printed (``text``) and displayed (``images``: data URLs)."""
State = Literal["ask", "wait", "run", "cell"]
"""The user is asked; the main thread is waited for; the function runs; a cell asks the user."""
LOOK_S = 0.3
"""Seconds of a call after which it is shown that it takes a while."""
PACE_S = 0.5
"""Between two looks at what a function prints."""
TAIL = 2_000
"""Characters of that, from its end."""


class Stopped(Exception):
    """The user has stopped what was to follow."""


class Calls:
    """Asks about the calls of one message and makes them, until it is stopped.

    Parameters
    ----------
    show
        Shows a call that is pending; None: none is any more.
    printed
        Shows what a function has printed and displayed.
    """

    def __init__(
        self, show: Callable[[Pending | None], None], printed: Callable[[Printed], None]
    ) -> None:
        self._show, self._printed = show, printed
        self._answers: queue.SimpleQueue[Consent | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._asked: str | None = None  # the id of the call that is asked about
        self._errand: Errand[Outcome] | None = None
        self.stopped = False

    # --- any thread ---------------------------------------------------------------------------

    def answer(self, call_id: str, consent: Consent) -> bool:
        """Answer what is asked about a call; False: nothing is, any more."""
        with self._lock:
            if self._asked is None or self._asked != call_id:
                return False
            self._asked = None
            self._answers.put(consent)
            return True

    def stop(self) -> None:
        """Make no call any more, and interrupt the one that is being made."""
        with self._lock:
            self.stopped, self._asked = True, None
            self._answers.put(None)
            if self._errand is not None:
                self._errand.give_up()

    # --- the thread of the message ------------------------------------------------------------

    def ask(self, call: ToolCall) -> Consent:
        """Ask, and wait for an answer; raises ``Stopped``."""
        with self._lock:
            if self.stopped:
                raise Stopped
            self._asked = call.id
        self._show(pending(call, "ask"))
        try:
            consent = self._answers.get()
        finally:
            self._show(None)
        if consent is None:
            raise Stopped
        return consent

    def carry_out(self, call: ToolCall, work: Callable[[], Outcome]) -> Outcome:
        """Make a call, and wait for its end; raises ``Stopped``."""
        captured = Captured()

        def captive() -> Outcome:
            with captured:
                return work()

        errand = Errand(captive)
        with self._lock:
            if self.stopped:
                raise Stopped
            self._errand = errand
        errand.begin()
        try:
            return self._waited(call, errand, captured)
        except (KeyboardInterrupt, CancelledError):
            raise Stopped from None
        finally:
            with self._lock:
                self._errand = None
            text, images = cut(captured.text), captured.images
            if text or images:
                self._printed({"id": call.id, "name": call.name, "text": text, "images": images})

    def _waited(self, call: ToolCall, errand: Errand[Outcome], captured: Captured) -> Outcome:
        """Wait for its end; after a while it is shown, and what it prints."""
        if errand.ended(LOOK_S):
            return errand.result()
        shown: Pending | None = None
        try:
            while not errand.ended(LOOK_S if shown is None else PACE_S):
                news = pending(call, "run" if errand.begun else "wait", captured.text[-TAIL:])
                if news != shown:
                    self._show(news)
                    shown = news
        finally:
            self._show(None)
        return errand.result()


def pending(call: ToolCall, state: State, output: str = "") -> Pending:
    """A call for the front end, and what its function has printed by now."""
    told = {"id": call.id, "name": call.name, "state": state, "output": output}
    return told | {"arguments": json.dumps(call.arguments, ensure_ascii=False)}
