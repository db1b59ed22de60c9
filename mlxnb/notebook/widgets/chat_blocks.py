"""An answer's Markdown in blocks: what is finished is rendered once, only the last one again.

Blocks end where nothing that follows can change them: at a blank line before a line that begins
at the margin, at fences there, and, so that no block grows without bound, at a line or a word of a
long paragraph or list. A link whose address stands elsewhere in the text stays as it is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mlxnb.notebook.markdown import steady, to_html

LONG = 4_000
"""Characters after which a block is ended at the next place that allows it."""

_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})\s*(\S*)")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])\s")


@dataclass(slots=True)
class Fence:
    """An open fence: the marks that close it, and what language it says."""

    marks: str
    lang: str

    def closes(self, line: str) -> bool:
        """Whether a line ends it."""
        mark = line.strip()
        return set(mark) == {self.marks[0]} and len(mark) >= len(self.marks)

    def may_close(self, line: str) -> bool:
        """Whether the beginning of a line may become what ends it."""
        return set(line.strip()) <= {self.marks[0]}


class Blocks:
    """A growing Markdown text.

    A block is a dict for the front end: ``html`` of rendered text, or ``code`` and ``lang`` of a
    fence.
    """

    def __init__(self, text: str = "") -> None:
        self._done: list[dict[str, str]] = []
        self._lines: list[str] = []  # whole lines of the open block
        self._rest = ""  # the line that is being written
        self._size = 0
        self._fence: Fence | None = None
        self._inner: Fence | None = None  # a fence inside the open block of text
        self._blank = False
        self._sent = 0  # blocks that the front end has, finally
        self._shown = ""  # code of the open block that it has
        self._changed = False
        if text:
            self.feed(text)

    def __bool__(self) -> bool:
        return bool(self._done or self._lines or self._rest)

    def feed(self, text: str) -> None:
        """Take the next piece; costs time in its length alone."""
        self._changed = True
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._take(line)
        if len(self._rest) > LONG and self._fence is None and self._inner is None:
            self._cut()

    # --- for the front end --------------------------------------------------------------------

    def all(self, final: bool = True) -> list[dict[str, str]]:
        """All blocks, as a front end needs them that has none."""
        return [*self._done, *self._last(final)]

    def news(self, final: bool = False) -> dict[str, Any] | None:
        """What a front end lacks that has had all earlier news; None: nothing.

        ``at`` is the place of the first of ``blocks``; a block there is replaced. Code that grows
        at its end comes as ``more``, which is put behind the code of block ``at``.
        """
        if not self._changed and not final:
            return None
        self._changed = False
        at, last = self._sent, self._last(final)
        fresh = [*self._done[at:], *last]
        self._sent = len(self._done)
        before, self._shown = self._shown, last[0].get("code", "") if last else ""
        if not fresh:
            return None
        code = fresh[0].get("code", "")
        if before and code.startswith(before):
            more = {"at": at, "more": code[len(before) :], "blocks": fresh[1:]}
            return more if more["more"] or more["blocks"] else None
        return {"at": at, "blocks": fresh}

    def _last(self, final: bool) -> list[dict[str, str]]:
        """The open block, if there is one."""
        if self._fence is not None:
            held = "" if not self._rest or self._fence.may_close(self._rest) else self._rest
            return [self._code([*self._lines, held])]
        text = "\n".join([*self._lines, self._rest])
        return [{"html": to_html(text if final else steady(text))}] if text.strip() else []

    # --- lines --------------------------------------------------------------------------------

    def _take(self, line: str) -> None:
        if self._fence is not None:
            self._take_code(line)
        elif self._inner is None and (mark := _FENCE.match(line)):
            self._end()
            self._fence = Fence(mark[1], mark[2])
        else:
            self._take_text(line)

    def _take_code(self, line: str) -> None:
        assert self._fence is not None, "code stands in a fence"
        if self._fence.closes(line):
            self._done.append(self._code([*self._lines, ""]))
            self._fence = None
            self._clear()
        else:
            self._lines.append(line)

    def _take_text(self, line: str) -> None:
        if self._inner is None and self._parts(line):
            self._end()
        self._lines.append(line)
        self._size += len(line) + 1
        self._blank = not line.strip()
        inner = line.lstrip()
        if self._inner is not None:
            self._inner = None if self._inner.closes(line) else self._inner
        elif inner != line and (mark := _FENCE.match(inner)):
            self._inner = Fence(mark[1], mark[2])

    def _parts(self, line: str) -> bool:
        """Whether a block of text ends before this line."""
        if not self._lines or not line.strip() or line[0] in " \t":
            return False
        item = _ITEM.match(line) is not None
        if self._size > LONG and (item or self._is_paragraph):
            return True
        return self._blank and not (item and _ITEM.match(self._lines[0]))

    @property
    def _is_paragraph(self) -> bool:
        return self._lines[0][:1] not in ("|", ">") and not _ITEM.match(self._lines[0])

    def _cut(self) -> None:
        """End a block in the midst of a line that is too long, between two words."""
        at = self._rest.rfind(" ", 0, LONG) + 1
        head = "\n".join([*self._lines, self._rest[:at]])
        if at and steady(head) == head:
            self._lines.append(self._rest[:at])
            self._rest = self._rest[at:]
            self._end()

    def _end(self) -> None:
        text = "\n".join(self._lines)
        if text.strip():
            self._done.append({"html": to_html(text)})
        self._clear()

    def _clear(self) -> None:
        self._lines, self._size, self._blank = [], 0, False

    def _code(self, lines: list[str]) -> dict[str, str]:
        assert self._fence is not None, "code stands in a fence"
        return {"code": "\n".join(lines), "lang": self._fence.lang}
