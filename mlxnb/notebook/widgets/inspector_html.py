"""What an inspector shows, as HTML that does nothing: no script, no style sheet, nothing remote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from mlxnb.records.colours import ORIGINS, PHASES, Colour
from mlxnb.sessions.spelled import REST

TEXT = 8_000
"""Characters of tokens' texts that are shown; all are in ``engine.tokens()``."""
ROWS = 60
"""Rows of a table that are shown; all are in the engine's frames."""
_CELL = "padding:.1em .6em;text-align:left;vertical-align:top"
_BAR = "display:flex;height:1.2em;margin:.3em 0;border:1px solid rgba(128,128,128,.6)"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace"


def page(state: dict[str, Any]) -> str:
    """One state of an inspector."""
    parts = [
        f"<div>{escape(state['said'])}</div>" if state["said"] else "",
        _table(state["facts"]),
        _strip(state["strip"]) if state["strip"] is not None else "",
        _timeline(state["timeline"]) if state["timeline"] else "",
        _tree(state),
    ]
    return f'<div style="color:inherit;line-height:1.4">{"".join(parts)}</div>'


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of texts."""
    found = list(rows)
    lines = [_line("th", head)] * bool(head)
    lines += [_line("td", row) for row in found[:ROWS]]
    more = f"<div>… {len(found) - ROWS:,} more</div>" if len(found) > ROWS else ""
    return f'<table style="border-collapse:collapse;margin:.4em 0">{"".join(lines)}</table>{more}'


def _line(tag: str, cells: Iterable[str]) -> str:
    made = (f'<{tag} style="{_CELL}">{escape(cell)}</{tag}>' for cell in cells)
    return f"<tr>{''.join(made)}</tr>"


def _painted(colour: Colour) -> str:
    return f"background:{colour.fill};color:{colour.ink}"


# --- tokens -----------------------------------------------------------------------------------


def _strip(strip: dict[str, Any]) -> str:
    """The counts, a bar of all tokens, and their texts, folded away."""
    legend = " ".join(
        f'<span style="{_painted(ORIGINS[origin])};padding:0 .4em">{origin} {count:,}</span>'
        for origin, count in strip["counts"].items()
    )
    bar = "".join(
        f'<div style="flex:{end - start} 0 0;{_painted(ORIGINS[origin])}" '
        f'title="{start:,}–{end - 1:,} {origin}"></div>'
        for origin, start, end in strip["runs"]
    )
    return f'<div>{legend}</div><div style="{_BAR}">{bar}</div>{_parting(strip)}{_texts(strip)}'


def _parting(strip: dict[str, Any]) -> str:
    at = strip["diverged"]
    return "" if at is None else f"<div>▼ parts from the nearest earlier turn at token {at:,}</div>"


def _texts(strip: dict[str, Any]) -> str:
    if strip["texts"] is None:
        return "<div>texts are not shown: this turn is a client's</div>"
    parts, left = [], TEXT
    for origin, start, end in _cut(strip):
        text = "".join(text for text in strip["read"][start:end] if text != REST)[:left]
        mark = "▼" if start == strip["diverged"] else ""
        parts.append(f'<span style="{_painted(ORIGINS[origin])}">{mark}{escape(text)}</span>')
        left -= len(text)
    more = "" if left else "<div>… and more</div>"
    shown = f'<div style="{_TEXT}">{"".join(parts)}</div>{more}'
    return f"<details><summary>texts</summary>{shown}</details>"


def _cut(strip: dict[str, Any]) -> Iterable[tuple[str, int, int]]:
    """The runs, cut where the prompt parts from the earlier one."""
    at = strip["diverged"]
    for origin, start, end in strip["runs"]:
        if at is not None and start < at < end:
            yield origin, start, at
            start = at
        yield origin, start, end


# --- time and cache ---------------------------------------------------------------------------


def _timeline(rows: list[list[Any]]) -> str:
    """A bar of the phases, and their sums as a table."""
    pieces, cells = [], []
    for phase in PHASES:
        own = [row for row in rows if row[0] == phase]
        seconds, tokens = sum(end - start for _, start, end, _ in own), sum(row[3] for row in own)
        if own:
            cells.append([phase, f"{seconds:.3f} s", f"{tokens:,}" if tokens else ""])
            flex = f"flex:{round(seconds * 1e6)} 0 0;{_painted(PHASES[phase])}"
            pieces.append(f'<div style="{flex}" title="{phase} {seconds:.3f} s"></div>')
    bar = f'<div style="{_BAR}">{"".join(pieces)}</div>'
    return bar + _table(cells, ("phase", "time", "tokens"))


def _tree(state: dict[str, Any]) -> str:
    """The pieces of the prefix cache, indented, folded away."""
    cache = state["cache"]
    head = ("piece", "positions", "tokens", "bytes", "hits", "shared by", "goes", "text")
    lines = (
        (
            "\u2003" * piece["depth"] + piece["first"][:8] + (" pinned" if piece["pinned"] else ""),
            f"{piece['start']:,}–{piece['end']:,}",
            f"{piece['tokens']:,}",
            f"{piece['bytes']:,}",
            f"{piece['hits']:,}",
            f"{piece['leaves']:,}",
            "" if piece["evict_order"] is None else f"{piece['evict_order']:,}",
            piece["preview"],
        )
        for piece in state["tree"]
    )
    said = f"prefix cache: {cache['rows']:,} rows, {cache['memory']:,} bytes in memory"
    said += f", {cache['disk']:,} bytes on disk" if cache["disk"] else ""
    return f"<details><summary>{said}</summary>{_table(lines, head)}</details>"
