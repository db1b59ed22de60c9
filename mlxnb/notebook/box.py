"""The box in which an answer stands in a notebook, and the line of facts under it.

Styles are on the elements, so that a page that takes style sheets out keeps most of the look;
colours are translucent, for light and dark pages.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from html import escape

from mlxnb.notebook.markdown import steady, to_html
from mlxnb.records.turn import FinishReason, ToolCall, Turn

# Typesetters of math leave elements of these classes alone.
_OPEN = (
    '<div class="mlxnb-answer tex2jax_ignore mathjax_ignore" style="color:inherit;'
    'border-left:3px solid rgba(128,128,128,.4);padding-left:.8em">'
)
_FAINT = "opacity:.65;font-size:.85em"
_ENDS: dict[FinishReason | None, str] = {
    "length": "cut at max_tokens",
    "cancelled": "interrupted",
    "error": "failed",
    "stop_sequence": "at a stop string",
}


def html(text: str, reasoning: str, calls: Sequence[str], note: str, final: bool) -> str:
    """One state of an answer: reasoning folded, text rendered, calls, a faint last line.

    Parameters
    ----------
    calls
        Tool calls, as plain text.
    final
        False: more is to come, and open spans of the text are closed for now.
    """
    parts = [_OPEN]
    if reasoning:
        parts.append(_folded(reasoning, thinking=not (text or calls or final)))
    if text:
        parts.append(to_html(text if final else steady(text)))
    parts += [f"<pre>call {escape(call)}</pre>" for call in calls]
    if note:
        parts.append(f'<div style="{_FAINT}">{escape(note)}</div>')
    return "".join([*parts, "</div>"])


def _folded(reasoning: str, thinking: bool) -> str:
    name = "Reasoning …" if thinking else "Reasoning"
    return f'<details style="{_FAINT}"><summary>{name}</summary>{to_html(reasoning)}</details>'


def footer(turn: Turn) -> str:
    """Tokens, how many were reused, time to first token, tokens a second, and an unusual end."""
    usage, timing = turn.usage, turn.timing
    facts = [
        f"{usage.output_tokens:,} token{'' if usage.output_tokens == 1 else 's'}",
        f"{usage.cached_tokens:,} of {usage.prompt_tokens:,} cached",
    ]
    if timing.ttft_s is not None:
        facts.append(f"first token {timing.ttft_s:.2f} s")
    if usage.output_tokens > 1 and timing.decode_s > 0:
        facts.append(f"{(usage.output_tokens - 1) / timing.decode_s:.1f} tokens/s")
    if turn.finish_reason in _ENDS:
        facts.append(_ENDS[turn.finish_reason])
    return " · ".join(facts)


def described(call: ToolCall, answered: Container[str] = ()) -> str:
    """A tool call on one line; without its id, which nobody needs, where its tool is answered."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f"{'' if call.name in answered else f'{call.id}: '}{call.name} {arguments}"


def returned(name: str, text: str, failed: bool) -> str:
    """What a function came to."""
    return f"{'error' if failed else 'result'} of {name}: {text}"


def aside(text: str) -> str:
    """A box with something that is no answer."""
    return f"{_OPEN}<pre>{escape(text)}</pre></div>"
