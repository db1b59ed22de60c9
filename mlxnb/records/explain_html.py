"""An explanation as a self-contained piece of HTML: no script, no style sheet, nothing remote.

Colours are those of the page with translucent ones over them, so that it reads on light and
on dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from mlxnb.records.segments import Segment

if TYPE_CHECKING:
    from mlxnb.records.explain import Explanation

ROWS = 200
"""Segments shown; all are in ``.frame``."""
_COLOURS = {
    "reused": "rgba(46, 160, 67, .45)",
    "recomputed": "rgba(218, 54, 51, .45)",
    "displaced": "rgba(219, 150, 20, .5)",
    "computed": "rgba(128, 128, 128, .35)",
}
_CELL = "padding:.15em .6em;text-align:left;vertical-align:top"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace"


def report(found: Explanation) -> str:
    """The facts, a bar of the prompt, the first difference and the segments."""
    parts = [
        _table((name, escape(value)) for name, value in found.facts),
        _bar(found.segments),
        _difference(found) if found.first_difference is not None else "",
        _segments(found.segments),
    ]
    return f'<div style="color:inherit;line-height:1.4">{"".join(parts)}</div>'


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table; the first cell of a row names it. Cells are HTML already."""
    lines = [f"<tr>{''.join(f'<th style={_CELL!r}>{name}</th>' for name in head)}</tr>"] * bool(
        head
    )
    for name, *cells in rows:
        line = "".join(f"<td style={_CELL!r}>{cell}</td>" for cell in cells)
        lines.append(f"<tr><th style={_CELL!r}>{name}</th>{line}</tr>")
    return f'<table style="border-collapse:collapse;margin:.4em 0">{"".join(lines)}</table>'


def _bar(segments: Sequence[Segment]) -> str:
    """The prompt as a bar, and what its colours mean."""
    pieces = "".join(
        f'<div style="flex:{segment.end - segment.start} 0 0;background:{_COLOURS[segment.source]}"'
        f' title="{_title(segment)}"></div>'
        for segment in segments
    )
    sums = {source: sum(_size(s) for s in segments if s.source == source) for source in _COLOURS}
    legend = " ".join(
        f'<span style="background:{_COLOURS[source]};padding:0 .4em">{source} {tokens:,}</span>'
        for source, tokens in sums.items()
        if tokens
    )
    return f'<div style="display:flex;height:1.2em;margin:.4em 0">{pieces}</div><div>{legend}</div>'


def _size(segment: Segment) -> int:
    return segment.end - segment.start


def _title(segment: Segment) -> str:
    role = segment.role or "prompt"
    return escape(f"{segment.start}–{segment.end} {role}: {segment.source}")


def _difference(found: Explanation) -> str:
    """Both sides of the first difference, with the token ids."""
    difference = found.first_difference
    assert difference is not None, "only called with a difference"
    sides = [
        ("before it", difference.context, difference.context_tokens),
        (f"{found.turn_id} has", difference.text, difference.tokens),
        (f"{found.nearest_id} had", difference.earlier_text, difference.earlier_tokens),
    ]
    return _table(
        (escape(name), _code(text), _code(" ".join(map(str, tokens))))
        for name, text, tokens in sides
    )


def _code(text: str) -> str:
    return f'<span style="{_TEXT}">{escape(text)}</span>'


def _segments(segments: Sequence[Segment]) -> str:
    """A table of the first `ROWS` segments, folded away."""
    rows = [
        (
            f"{s.start:,}–{s.end:,}",
            escape(s.role or ""),
            f'<span style="background:{_COLOURS[s.source]}">{s.source}</span>',
            escape(s.note or ""),
            _code(s.text or ""),
        )
        for s in segments[:ROWS]
    ]
    more = f"<div>… {len(segments) - ROWS:,} more in .frame</div>" * (len(segments) > ROWS)
    table = _table(rows, ("tokens", "role", "source", "note", "text"))
    return f"<details><summary>{len(segments):,} segments</summary>{table}{more}</details>"
