"""A conversation that owns its token history."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from mlxnb.errors import SessionBusy
from mlxnb.records.turn import Source, Turn
from mlxnb.sessions import exported as files
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.exported import Exported
from mlxnb.sessions.exported_markdown import markdown
from mlxnb.sessions.follow import follow
from mlxnb.sessions.function import Function
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.stream import Stream
from mlxnb.sessions.toolbox import Caller, Toolbox
from mlxnb.sessions.toolbox_calls import calls_frame
from mlxnb.sessions.toolbox_rounds import run
from mlxnb.sessions.toolbox_run import Run

if TYPE_CHECKING:
    import pandas as pd


log = logging.getLogger(__name__)
_runs = threading.Lock()
"""Held while a run begins."""


class Onlooker(Protocol):
    """Sees what goes on in a session, as a chat does that shows it. It returns at once."""

    def reply_begun(
        self, said: str | None, after: Turn | None, reply: Reply, source: Source
    ) -> None:
        """A turn has begun, and may be over.

        ``said`` is None where it goes on from results of tools; ``after`` is the turn that had
        ended last when it began.
        """

    def run_changed(self, run: Run) -> None:
        """A run has begun or ended, or what is pending in it has changed."""


class Session(ABC):
    """A conversation with one model. Made by ``engine().session(...)``.

    One turn at a time; ``send`` and its kin may be called from any thread.

    Attributes
    ----------
    last
        The turn that ended last, be it a cancelled or failed one.
    """

    name: str
    options: Options
    created_at: dt.datetime
    last_used: dt.datetime
    forked_from: str | None
    last: Turn | None
    _run: Run | None = None

    def __repr__(self) -> str:
        return f"Session({self.name!r}, model={self.model!r}, turns={self.turns})"

    @property
    def model(self) -> str:
        """The name of its model."""
        return self.options.model

    @property
    @abstractmethod
    def history(self) -> list[Message]:
        """The messages of the turns that ended well, in the chat template's form; a copy."""

    @property
    @abstractmethod
    def tokens(self) -> list[int]:
        """The tokens that the next prompt begins with; empty with template history."""

    @property
    @abstractmethod
    def turns(self) -> int:
        """Turns that ended well."""

    @property
    @abstractmethod
    def answering(self) -> bool:
        """Whether a turn is running."""

    # --- turns --------------------------------------------------------------------------------

    def send(self, text: str, **sampling: Any) -> Turn:
        """Say something and wait for the answer.

        Parameters
        ----------
        text
            What the user says, verbatim.
        **sampling
            ``temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
            frequency_penalty, logit_bias, seed, max_tokens, stop, n, logprobs`` for this turn
            alone. With ``n`` the answers are on ``Turn.choices``; the first one is continued.
            With ``logprobs`` (0 to 20) ``Turn.logprobs`` has each token's log-probability, and
            those of so many of the likeliest beside it.

            ``schema``, a pydantic model or a JSON schema: the text conforms to it, and
            ``Turn.parsed`` is the value. ``tool_choice``, ``auto``, ``none``, ``required`` or a
            tool's name: which of the session's tools may or must be called, with arguments that
            conform to their schemas.

        Raises
        ------
        BadSchema
            The schema is none, or cannot be enforced.
        ContextOverflow
            The prompt is longer than the model's context; nothing was touched.
        PendingToolCalls
            Results of tool calls must be sent first.
        QueueFull, SessionBusy
            Too much is going on.
        TemplateFailed
            The model's chat template refuses the conversation.
        RequestFailed
            The turn ended in an error; the history is as it was.
        """
        return self.reply(text, **sampling).result()

    def stream(self, text: str, **sampling: Any) -> Stream:
        """As ``send``: an iterator over `Delta`, piece by piece as generated, and last the `Turn`.

        The answer starts at once; closing or dropping the iterator stops it.
        """
        return Stream(self.reply(text, **sampling))

    async def asend(self, text: str, **sampling: Any) -> Turn:
        """As ``send``; cancelling the task stops the answer."""
        pieces = self.astream(text, **sampling)
        return [piece async for piece in pieces if isinstance(piece, Turn)][-1]

    def astream(self, text: str, **sampling: Any) -> AsyncIterator[Delta | Turn]:
        """As ``stream``; the answer starts when the first piece is asked for."""
        return follow(lambda: self.stream(text, **sampling))

    @abstractmethod
    def send_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> Turn | None:
        """Give the result of a tool call; when the last one is there, the model goes on.

        After a turn that failed the results are still there: give any of them again.

        Parameters
        ----------
        content
            Text, or something that has a JSON form.

        Returns
        -------
        Turn or None
            The model's next turn; None while results are outstanding.

        Raises
        ------
        UnknownToolCall
            No such call is outstanding.
        InvalidOption
            The content has no JSON form.
        """

    @abstractmethod
    def add_tool_result(self, call_id: str, content: Any, is_error: bool = False) -> None:
        """As ``send_tool_result``, and the model does not go on: it does with what is said next.

        ``reply(None)`` says nothing but the results.
        """

    @abstractmethod
    def reply(
        self,
        text: str | None,
        source: Source = "python",
        schema: Any = None,
        tool_choice: str | None = None,
        **sampling: Any,
    ) -> Reply:
        """As ``send``, returning at once: the answer's events can be followed and cancelled."""

    @cached_property
    def onlookers(self) -> WeakSet[Onlooker]:
        """Who is told of turns that begin in this process."""
        return WeakSet()

    def _tell(self, said: str | None, after: Turn | None, reply: Reply, source: Source) -> None:
        self._tell_all(lambda onlooker: onlooker.reply_begun(said, after, reply, source))

    def _tell_of_run(self, run: Run) -> None:
        self._tell_all(lambda onlooker: onlooker.run_changed(run))

    def _tell_all(self, tell: Callable[[Onlooker], None]) -> None:
        for onlooker in list(self.onlookers):
            try:
                tell(onlooker)
            except Exception:  # what goes on is not theirs to stop
                log.exception("an onlooker of a session failed")

    @contextmanager
    def running(self, caller: Caller, source: Source) -> Iterator[Run]:
        """While the context lasts, only this run speaks in the session, in this process.

        Raises
        ------
        SessionBusy
            Another run goes on.
        """
        with _runs:
            self.check_free()
            self._run = run = Run(self, caller, source, self._tell_of_run)
        try:
            self._tell_of_run(run)
            yield run
        except KeyboardInterrupt:
            run.stopped = True
            raise
        finally:
            self._run = None
            run.end()

    def check_free(self) -> None:
        """Raise ``SessionBusy`` where a run goes on that is not the caller."""
        if self._run is not None and not self._run.speaks:
            raise SessionBusy(
                f"the session {self.name!r} is calling functions, or asks about one; answer or "
                "stop that, or use another session"
            )

    # --- functions ----------------------------------------------------------------------------

    @cached_property
    def toolbox(self) -> Toolbox:
        """The functions of this process that the model may call."""
        return Toolbox()

    def tool(self, function: Callable[..., Any] | None = None, *, confirm: bool = True) -> Any:
        """Let the model call a Python function, in ``run``: ``@session.tool`` over its definition.

        The tools stand at the beginning of the prompt: after the first turn all of it is computed
        once more, and answers that were given are rendered anew from their text.

        Parameters
        ----------
        confirm
            Ask with ``input`` before each call.

        Returns
        -------
        Callable
            The function as it is; without one, a decorator.

        Raises
        ------
        InvalidOption
            It cannot be called with named arguments from JSON.
        SessionBusy
            A turn is running.
        """
        if function is None:
            return lambda given: self.tool(given, confirm=confirm)
        made = Function(function, confirm)
        others = [t for t in self.options.tool_list or () if _tool_name(t) != made.name]
        names = [_tool_name(tool) for tool in self.options.tool_list or ()]
        place = names.index(made.name) if made.name in names else len(others)
        self.set_tools([*others[:place], made.definition, *others[place:]])
        self.toolbox.add(made)
        return function

    def remove_tool(self, name: str) -> None:
        """Let the model call a function no longer.

        Raises
        ------
        InvalidOption
            It was not registered.
        SessionBusy
            A turn is running.
        """
        self.toolbox.check(name)
        left = [tool for tool in self.options.tool_list or () if _tool_name(tool) != name]
        self.set_tools(left)
        self.toolbox.remove(name)

    @abstractmethod
    def set_tools(self, tools: list[Any]) -> None:
        """Give the session other tool definitions, as the OpenAI API has them.

        Raises
        ------
        InvalidOption
            They are not plain JSON.
        SessionBusy
            A turn is running.
        """

    def run(self, text: str, rounds: int | None = None, **options: Any) -> Turn:
        """As ``send``; functions that the model calls are called, here, until it answers.

        They are called one after another in this thread, and asked about before, as they were
        registered. An error goes back to the model. A ``tool_choice`` that forces a call does so
        in the first turn alone. A call of a tool that is no function of this process ends it.

        After an interrupt, and where ``rounds`` were not enough, calls that were not made have an
        error as their result, which the model reads with what is said next.

        Parameters
        ----------
        rounds
            How often calls are answered at most; None: ``toolbox.rounds``, which is 8 at first.
        **options
            As of ``send``, for each turn.

        Returns
        -------
        Turn
            The last one.

        Raises
        ------
        InvalidOption
            A function is asked about and nobody can be; nothing was said.
        """
        return run(self, text, rounds, **options)

    def calls(self) -> pd.DataFrame:
        """The calls of functions in this process, a row each.

        Columns: ``call_id``, ``turn_id``, ``name``, ``arguments`` (JSON), ``result`` and ``error``
        (one of them NA), ``seconds`` (NA: not called), ``confirmed`` (NA: not asked about).
        """
        return calls_frame(self.toolbox.calls)

    # --- files --------------------------------------------------------------------------------

    def export(self, path: str | Path) -> Path:
        """Write the session into a file that only this user can read.

        Parameters
        ----------
        path
            ``.md``: Markdown, for people. Anything else: JSON, which `Engine.import_session`
            goes on from, token for token. A file that is there is replaced.

        Raises
        ------
        InvalidOption
            It cannot be written.
        """
        place, state = Path(path).expanduser().absolute(), self.exported()
        text = markdown(state) if place.suffix == ".md" else state.model_dump_json(indent=1)
        files.write(place, text)
        return place

    def to_markdown(self) -> str:
        """The conversation as Markdown: what was said in quotes, calls and results as code."""
        return markdown(self.exported())

    @abstractmethod
    def exported(self) -> Exported:
        """The session as ``export`` writes it: all but its KV."""

    @abstractmethod
    def keep(self) -> None:
        """Save the session after each turn, for `Engine.restore_session` in another process.

        Raises
        ------
        SessionExists
            Another session of that name is kept.
        NotPrivate, StateUnwritable
            There is no place for it.
        """

    # --- the conversation as a whole ----------------------------------------------------------

    @abstractmethod
    def fork(self, name: str | None = None) -> Session:
        """A new session with the same past; both share all KV that is there.

        While a turn runs, the past is what was before it.
        """

    @abstractmethod
    def rewind(self, turns: int = 1) -> None:
        """Take back the last turns; what stays is not computed again.

        Raises
        ------
        InvalidOption
            There are fewer turns.
        SessionBusy
            A turn is running.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget everything that was said; the system text stays.

        Raises
        ------
        SessionBusy
            A turn is running.
        """


def _tool_name(tool: Any) -> Any:
    return (tool.get("function") or tool).get("name")
