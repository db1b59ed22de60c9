"""A conversation that owns its token history."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from mlxnb.records.turn import Source, Turn
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.follow import follow
from mlxnb.sessions.messages import Message
from mlxnb.sessions.options import Options
from mlxnb.sessions.reply import Reply
from mlxnb.sessions.stream import Stream


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
            frequency_penalty, logit_bias, seed, max_tokens, stop, n`` for this turn alone. With
            ``n`` the answers are on ``Turn.choices``; the first one is continued.

        Raises
        ------
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
    def reply(self, text: str, source: Source = "python", **sampling: Any) -> Reply:
        """As ``send``, returning at once: the answer's events can be followed and cancelled."""

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
