"""Stop sequences over visible text."""

from __future__ import annotations

from collections.abc import Sequence

from mlxnb.text.search import Patterns, Search


class StopMatcher:
    r"""Ends a text at the first of some stop sequences.

    Parameters
    ----------
    stops
        Strings to stop at. Empty ones are dropped; with none left no byte is changed or held.
        Whitespace counts: ``"\n"`` stops at the end of the first line.

    Attributes
    ----------
    matched
        The stop sequence that was found, else None. The match that starts first wins, of those
        the longest. Once it is set nothing more comes out.
    """

    __slots__ = ("_search",)

    def __init__(self, stops: Sequence[str]) -> None:
        self._search = Search(Patterns(stops))

    @property
    def matched(self) -> str | None:
        """The stop sequence that was found, or None."""
        return self._search.matched

    def feed(self, text: str) -> str:
        """Text that no stop sequence can touch any more, in order."""
        return "" if self._search.matched is not None else self._search.feed(text)

    def flush(self) -> str:
        """The end of the text: what was held, up to a stop sequence that it ends with."""
        return "" if self._search.matched is not None else self._search.flush()
