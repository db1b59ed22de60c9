"""Many turns at once, each on a fork of its own: some threads take them in order."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlxnb.errors import (
    EngineClosed,
    HostGone,
    InvalidOption,
    MlxnbError,
    NothingLoaded,
    QueueFull,
)
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.session import Session

if TYPE_CHECKING:
    from mlxnb.sessions.engine import Engine

PAUSE_S = 0.05
"""Between two attempts to get into a queue that is full, and two looks at what still runs."""
GRACE_S = 10.0
"""Seconds of waiting for what is stopped after which an interrupt is raised at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """A turn that is wanted.

    Attributes
    ----------
    origin
        What it goes on from, and what stays as it is.
    name
        The fork's, while it is there.
    options
        For `Session.reply`.
    """

    origin: Session
    name: str
    text: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A turn that has ended, or the reason why it did not begin."""

    turn: Turn | None
    refusal: MlxnbError | None = None

    @property
    def error(self) -> str | None:
        """What went wrong, in the words of the turns' frame."""
        if self.refusal is not None:
            return f"{type(self.refusal).__name__}: {self.refusal}"
        return self.turn.error if self.turn is not None else None

    @property
    def good(self) -> bool:
        """Whether there is a whole answer."""
        return self.turn is not None and self.turn.ended_well


class Crew:
    """Does jobs, so many at a time.

    Parameters
    ----------
    hands
        How many turns may be in flight.

    Attributes
    ----------
    count
        How many jobs there are.
    outcomes
        Those that have ended, by the jobs' numbers.
    """

    def __init__(self, engine: Engine, jobs: Mapping[int, Job], hands: int, source: Source) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._engine, self._source = engine, source
        self._left = iter(jobs.items())
        self.count, self._hands = len(jobs), min(hands, len(jobs))
        self._door, self._lock = threading.Lock(), threading.Lock()
        self._stopped = threading.Event()
        self._running: set[Reply] = set()
        self._fault: Exception | None = None
        self._told: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    # --- the thread that waits ----------------------------------------------------------------

    def run(self, each: Callable[[Outcome], None]) -> None:
        """Do all jobs; ``each`` is called as they end, and may raise to stop them.

        All has ended when this returns or raises.

        Raises
        ------
        KeyboardInterrupt
            There was an interrupt; what ran was stopped.
        MlxnbError
            No further job can be done.
        """
        threads = [
            threading.Thread(target=self._work, name="mlxnb-crew", daemon=True)
            for _ in range(self._hands)
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in range(self.count):
                number = self._told.get()
                if number is None:
                    break
                each(self.outcomes[number])
        except BaseException:
            self.stop()
            raise
        finally:
            self._join(threads)
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Begin no more, and stop what runs within one step. Any thread may call."""
        self._stopped.set()
        with self._lock:
            running = list(self._running)
        for reply in running:
            reply.cancel()
        self._told.put(None)

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for them; an interrupt is raised when they have ended, or after a while."""
        begin, came = time.monotonic(), False
        while alive := [thread for thread in threads if thread.is_alive()]:
            try:
                alive[0].join(PAUSE_S)
            except KeyboardInterrupt:
                came = True
                self.stop()
                if time.monotonic() - begin > GRACE_S:
                    raise
        if came:
            raise KeyboardInterrupt

    # --- the hands ----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._one():
                pass
        except Exception as error:
            self._fault = self._fault or error
            self.stop()

    def _one(self) -> bool:
        """Do the next job; False: there is none, or no more is to begin."""
        with ExitStack() as after:
            with self._door:  # they begin in order, and the first computes what they share
                number, job = next(self._left, (None, None))
                if number is None or job is None or self._stopped.is_set():
                    return False
                begun = self._begun(job, after)
            if begun is None:
                return False
            self.outcomes[number] = (
                Outcome(self._ended(begun)) if isinstance(begun, Reply) else begun
            )
        self._told.put(number)
        return True

    def _begun(self, job: Job, after: ExitStack) -> Reply | Outcome | None:
        """The reply, as soon as the engine takes it, or why it does not; None: stopped."""
        fork = job.origin.fork(job.name)
        after.callback(self._remove, fork)
        try:
            while not self._stopped.is_set():
                with suppress(QueueFull):
                    return fork.reply(job.text, self._source, **job.options)
                self._stopped.wait(PAUSE_S)
        except (InvalidOption, NothingLoaded, EngineClosed, HostGone):  # none can be done
            raise
        except MlxnbError as refusal:
            return Outcome(None, refusal)
        return None

    def _remove(self, fork: Session) -> None:
        with suppress(MlxnbError):
            self._engine.remove_session(fork.name)

    def _ended(self, reply: Reply) -> Turn:
        with self._lock:
            self._running.add(reply)
        try:
            if self._stopped.is_set():
                reply.cancel()
            return reply.outcome()
        finally:
            with self._lock:
                self._running.discard(reply)
