"""All turns of a process, in order of start. Its rows are live: the engine writes into them."""

from __future__ import annotations

import datetime as dt
import difflib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator

from mlxnb.errors import InvalidOption, UnknownTurn
from mlxnb.records.turn import TurnRecord


class Ledger:
    """Append-only, thread-safe list of turn records, bounded in rows and in token memory.

    Parameters
    ----------
    limit
        Rows kept; beyond it the oldest are dropped.
    keep_tokens
        Newest rows that keep their token ids and spans, which ``explain`` needs (4 bytes a
        token). Older rows stay in the frame without them. An open row keeps its tokens.

    Raises
    ------
    InvalidOption
        ``limit`` is below 1 or ``keep_tokens`` below 0.
    """

    def __init__(self, limit: int = 10_000, keep_tokens: int = 500) -> None:
        if limit < 1 or keep_tokens < 0:
            raise InvalidOption(
                f"a ledger keeps limit >= 1 rows and keep_tokens >= 0 rows with tokens, "
                f"not limit={limit}, keep_tokens={keep_tokens}"
            )
        self.limit = limit
        self.keep_tokens = min(keep_tokens, limit)
        self._lock = threading.Lock()
        self._ids = 0
        self._rows: OrderedDict[str, TurnRecord] = OrderedDict()
        self._with_tokens: OrderedDict[str, TurnRecord] = OrderedDict()
        self._open: set[str] = set()

    def new_id(self) -> str:
        """``t1``, ``t2``, …: never the same one twice."""
        with self._lock:
            self._ids += 1
            return f"t{self._ids}"

    def open(self, record: TurnRecord) -> None:
        """Append the record of a turn that starts now."""
        with self._lock:
            assert record.turn_id not in self._rows, f"turn {record.turn_id} is there already"
            self._rows[record.turn_id] = record
            self._with_tokens[record.turn_id] = record
            self._open.add(record.turn_id)
            if len(self._rows) > self.limit:
                self._rows.popitem(last=False)
            if len(self._with_tokens) > self.keep_tokens:
                turn_id, oldest = self._with_tokens.popitem(last=False)
                self._drop_tokens(turn_id, oldest)

    def close(self, record: TurnRecord) -> None:
        """Mark a turn as ended: nobody writes into its record from here on."""
        with self._lock:
            assert record.turn_id in self._open, f"turn {record.turn_id} is not open"
            self._open.remove(record.turn_id)
            if record.turn_id not in self._with_tokens:
                self._drop_tokens(record.turn_id, record)

    def forget(self, session: str, since: dt.datetime) -> None:
        """Drop the tokens of a session's turns; their rows stay.

        Parameters
        ----------
        since
            When it was made: an earlier one may have had the same name.
        """
        with self._lock:
            for turn_id, record in list(self._with_tokens.items()):
                own = record.session == session and record.started_at >= since
                if own and turn_id not in self._open:
                    del self._with_tokens[turn_id]
                    self._drop_tokens(turn_id, record)

    def _drop_tokens(self, turn_id: str, record: TurnRecord) -> None:
        """Give a closed row empty arrays; who holds the old ones may go on reading them."""
        if turn_id not in self._open:
            record.prompt, record.output, record.spans = array("I"), array("I"), []
            record.chunks, record.instants = [], array("d")

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TurnRecord]:
        """The rows that are there now; turns that start meanwhile are not among them."""
        return iter(self.rows())

    def __contains__(self, turn_id: object) -> bool:
        return turn_id in self._rows

    def __getitem__(self, turn_id: str) -> TurnRecord:
        with self._lock:
            try:
                return self._rows[turn_id]
            except KeyError:
                raise UnknownTurn(self._missing(turn_id)) from None

    def rows(self) -> list[TurnRecord]:
        """A copy of the list of rows, oldest first."""
        with self._lock:
            return list(self._rows.values())

    def last(self) -> TurnRecord:
        """The turn that started last.

        Raises
        ------
        UnknownTurn
            There has been no turn.
        """
        with self._lock:
            if not self._rows:
                raise UnknownTurn("there has been no turn yet")
            return next(reversed(self._rows.values()))

    def before(self, turn_id: str) -> list[TurnRecord]:
        """The rows that started before this one and have their tokens, oldest first.

        Raises
        ------
        UnknownTurn
            No turn of that id is in the ledger.
        """
        self[turn_id]
        with self._lock:
            kept = list(self._with_tokens)
            if turn_id not in self._with_tokens:
                return []
            return [self._with_tokens[other] for other in kept[: kept.index(turn_id)]]

    def _missing(self, turn_id: str) -> str:
        """What to say about an id that is not there."""
        if not self._rows:
            return f"no turn {turn_id!r}: there has been no turn yet"
        first, last = next(iter(self._rows)), next(reversed(self._rows))
        if turn_id[:1] == "t" and turn_id[1:].isdecimal() and int(turn_id[1:]) <= self._ids:
            return f"turn {turn_id!r} is not kept: the ledger holds {first} to {last}"
        near = difflib.get_close_matches(turn_id, list(self._rows)[-1000:], n=3, cutoff=0.5)
        hint = f"; near: {', '.join(near)}" if near else ""
        return f"no turn {turn_id!r}: the ledger holds {first} to {last}{hint}"
