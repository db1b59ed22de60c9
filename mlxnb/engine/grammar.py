"""Grammars of answers, in llguidance's dialect of Lark.

Why llguidance: it compiles a schema in milliseconds, computes a mask in 10 to 100 µs (measured
here over 49,152 tokens), knows special tokens and lazy lexemes, and refuses what of JSON schema
it does not implement instead of ignoring it.
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlxnb.engine.form import Form
from mlxnb.engine.markup import Markup

JSON_BLANKS = r"[ \n\t]{0,16}"
"""Blanks between the parts of JSON: enough to indent it, not enough to get lost in."""
BLANKS = r"/[ \n]{0,4}/"
"""Blanks around a call, or before the text."""

Spell = Callable[[str], str]
"""A tag as the grammar spells it: a quoted string, or a special token in angle brackets."""


def json_of(schema: Mapping[str, Any]) -> str:
    """The rule of JSON that conforms to a schema."""
    own = {"whitespace_pattern": JSON_BLANKS}
    return "%json " + json.dumps({**schema, "x-guidance": own}, ensure_ascii=False)


def whole_answer(form: Form, markup: Markup, spell: Spell, reasons: bool | None) -> str:
    """The grammar of an answer that is JSON or calls from its beginning.

    Parameters
    ----------
    reasons
        Whether the prompt has opened the reasoning; None: the model may open it itself.
    """
    rules = [f"start: {_opening(markup, spell, reasons)}{BLANKS} body"]
    bodies = []
    if form.schema is not None and not form.required:
        bodies.append("json")
        rules.append(f"json: {json_of(form.schema)}")
    if form.callable_tools:
        bodies.append("calls")
        rules.append(f"calls: call ({BLANKS} call)*" if form.parallel else "calls: call")
        rules.append(f"call: {spell(markup.call[0])} inside")
        rules += _inside(form, markup, spell)
    assert bodies, "an answer that is neither JSON nor calls needs no grammar"
    rules.append(f"body: {' | '.join(bodies)}")
    if markup.think is not None:
        rules += _until("thought", markup.think[1], spell)
    return "\n".join(rules) + "\n"


def one_call(form: Form, markup: Markup, spell: Spell) -> str:
    """The grammar of what follows the start tag of a call, its end tag included."""
    return "\n".join(["start: inside", *_inside(form, markup, spell)]) + "\n"


def _opening(markup: Markup, spell: Spell, reasons: bool | None) -> str:
    if markup.think is None or reasons is False:
        return ""
    return "thought " if reasons else f"({spell(markup.think[0])} thought)? "


def _inside(form: Form, markup: Markup, spell: Spell) -> Iterator[str]:
    """Rules of a call behind its start tag."""
    tools = form.callable_tools
    end = markup.call[1]
    closing = f" {BLANKS} {spell(end)}" if end else ""
    if not markup.envelope.json:
        yield f"inside: {BLANKS} ({' | '.join(_heads(tools, markup))}) rest"
        yield from _until("rest", end, spell)
        return
    yield f"inside: {BLANKS} ({' | '.join(f'call_{n}' for n in range(len(tools)))}){closing}"
    for number, (head, schema) in enumerate(
        zip(_heads(tools, markup), tools.values(), strict=True)
    ):
        tail = f" {quoted(markup.envelope.tail)}" if markup.envelope.tail else ""
        yield f"call_{number}: {head} arguments_{number}{tail}"
        yield f"arguments_{number}: {json_of(closed(schema))}"


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of arguments that lets none be made up, where it does not say."""
    plain = "properties" in schema and not schema.keys() & _OPENING
    return {"type": "object", **({"additionalProperties": False} if plain else {}), **schema}


_OPENING = {"allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if"}
"""What else may name properties."""


def _heads(tools: Mapping[str, Any], markup: Markup) -> list[str]:
    return [quoted(head) for head in markup.envelope.heads(tools)]


def _until(rule: str, end: str, spell: Spell) -> Iterator[str]:
    """Anything, up to a tag and with it; without a tag up to the end."""
    tag = spell(end) if end else ""
    if tag.startswith('"'):
        yield f"{rule}[suffix={tag}]: /(?s:.*)/"
    else:
        yield f"{rule}: /(?s:.*)/ {tag}"


def quoted(text: str) -> str:
    """A text as a grammar's string."""
    return json.dumps(text, ensure_ascii=False)
