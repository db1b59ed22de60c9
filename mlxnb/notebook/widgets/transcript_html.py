"""A transcript as HTML of its own, for a saved notebook that is read where no widgets are."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mlxnb.notebook.box import html
from mlxnb.notebook.plain import plain
from mlxnb.notebook.widgets.transcript import Exchange, noted

_SAID = '<div style="white-space:pre-wrap;font-weight:600;margin:.8em 0 .4em">'


# JupyterLab puts a line that never ends ("Loading widget …") where a widget has no kernel.
_STYLE = (
    "<style>.jp-OutputArea-child:not(:has(.mlxnb-chat))"
    ":has(+ .jp-OutputArea-child .mlxnb-copy){display:none}</style>"
)


def as_bundle(exchanges: Sequence[Exchange], key: str) -> dict[str, str]:
    """The turns, oldest first: as ``text/html`` and ``text/plain``.

    Parameters
    ----------
    key
        That of the widget, which hides this copy wherever it is itself on the page.
    """
    count = f"{len(exchanges)} turn{'' if len(exchanges) == 1 else 's'}"
    parts = [part for exchange in exchanges for part in _html(exchange)]
    page = (
        f'{_STYLE}<details open class="mlxnb-copy mlxnb-copy-{key}">'
        f"<summary>Saved transcript, {count}</summary>{''.join(parts)}</details>"
    )
    texts = [text for e in exchanges for text in (f"> {e.said}" if e.said else "", e.text)]
    return {"text/html": page, "text/plain": plain("\n\n".join(filter(None, texts)))}


def _html(exchange: Exchange) -> list[str]:
    results = [
        f"<pre>result of {escape(r['name'])}: {escape(r['text'])}</pre>" for r in exchange.results
    ]
    said = [] if exchange.said is None else [f"{_SAID}{escape(exchange.said)}</div>"]
    calls = [f"{call['name']} {call['arguments']}" for call in exchange.calls]
    printed = [
        f"<pre>output of {escape(o['name'])}: {escape(o['text'])}</pre>"
        for o in exchange.outputs
        if o["text"]
    ]
    note = noted(exchange.meter)
    return [
        *results,
        *said,
        html(exchange.text, exchange.reasoning, calls, note, final=True),
        *printed,
    ]
