"""Reasoning and answer, told apart by a pair of tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mlxnb.text.search import Patterns, Search

Kind = Literal["text", "reasoning", "tag", "watched"]
Run = tuple[Kind, str]


class ReasoningSplitter:
    """Cuts a stream into runs of text, runs of reasoning and the tags between them.

    The runs joined are the stream, byte for byte. A start tag inside reasoning and an end tag
    outside it (of a model that was not seen to open one) are tags too: no literal tag is ever
    in a run of text or of reasoning. A beginning of a tag is held only while it could still
    become one.

    Parameters
    ----------
    tags
        Start and end tag, either may be empty; None for a model that does not reason.
    starts_inside
        The prompt has opened the tag.
    watch, watch_inside
        Tags of others to look for, outside and inside reasoning. At one of them the splitter
        stops: it is the last run, ``rest`` is what follows it, and what is fed next may be
        ``rest`` or any later part of the stream.
    """

    __slots__ = ("_inside", "_inside_patterns", "_outside_patterns", "_search", "_tags", "rest")

    def __init__(
        self,
        tags: tuple[str, str] | None,
        *,
        starts_inside: bool = False,
        watch: Sequence[str] = (),
        watch_inside: Sequence[str] = (),
    ) -> None:
        self._tags = tags or ("", "")
        self._inside_patterns = Patterns((*self._tags, *watch_inside))
        self._outside_patterns = Patterns((*self._tags, *watch))
        self._inside = starts_inside
        self._search = Search(self._patterns())
        self.rest = ""

    @property
    def inside(self) -> bool:
        """The stream is in reasoning."""
        return self._inside

    def resume(self, *, inside: bool) -> None:
        """Go on behind a watched tag, in reasoning or outside it."""
        self._inside = inside
        self._search.restart(self._patterns())

    def feed(self, text: str, *, last: bool = False) -> list[Run]:
        """The runs that are free now, none of them empty; with ``last`` the stream has ended."""
        runs: list[Run] = []
        self.rest = ""
        while True:
            free = self._search.feed(text)
            if last and self._search.matched is None:
                free += self._search.flush()
            if free:
                runs.append(("reasoning" if self._inside else "text", free))
            if self._search.matched is None:
                return runs
            text = self._search.rest
            runs.append(self._cross(self._search.matched))
            if runs[-1][0] == "watched":
                self.rest = text
                return runs

    def _cross(self, tag: str) -> Run:
        watched = tag not in self._tags
        self.resume(inside=self._inside if watched else tag == self._tags[0])
        return ("watched" if watched else "tag"), tag

    def _patterns(self) -> Patterns:
        return self._inside_patterns if self._inside else self._outside_patterns
