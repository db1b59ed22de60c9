"""An answer as an iterator."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mlxnb.records.turn import Turn
from mlxnb.sessions.delta import Delta
from mlxnb.sessions.reply import Reply


class Stream(Iterator[Delta | Turn]):
    """The pieces of an answer as they come, and last the turn.

    Attributes
    ----------
    reply
        The answer that is followed.
    """

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self._pieces = self._all()

    def _all(self) -> Iterator[Delta | Turn]:
        yield from self.reply.deltas()
        assert self.reply.turn is not None, "a turn has ended when its events have"
        yield self.reply.turn

    def __next__(self) -> Delta | Turn:
        """The next piece; raises as ``Reply.events`` does."""
        return next(self._pieces)

    def cancel(self) -> None:
        """Stop within one step; the partial turn comes last. Any thread may call."""
        self.reply.cancel()

    def close(self) -> None:
        """Stop, and wait until it has ended."""
        if self.reply.turn is None:
            self.reply.stop()
        self._pieces = iter(())

    def __del__(self) -> None:
        """Nobody looks any more: the answer need not go on, and the session is free again."""
        if not sys.is_finalizing():
            self.close()
