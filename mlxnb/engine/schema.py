"""Whether a JSON schema is one, and can be enforced; if not, where it is wrong."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from mlxnb.engine.grammar import json_of
from mlxnb.errors import BadSchema

Path = tuple[str | int, ...]


def check_schema(schema: Any, where: str) -> None:
    """Check a schema, before any model is loaded.

    Parameters
    ----------
    where
        The field that it stands in, which begins the path in the message.

    Raises
    ------
    BadSchema
        It is no schema, or uses what cannot be enforced; the message names the path.
    """
    check_rules(schema, where)
    fault = _circular(schema) or _unenforceable(schema)
    if fault is not None:
        raise _bad(where, *fault)


def check_rules(schema: Any, where: str) -> None:
    """Check that a schema is one, whether it can be enforced or not.

    Raises
    ------
    BadSchema
        It breaks the rules of JSON schema; the message names the path.
    """
    if not isinstance(schema, Mapping):
        raise _bad(where, (), "is not a JSON object")
    fault = _invalid(schema)
    if fault is not None:
        raise _bad(where, *fault)


def _bad(where: str, path: Path, reason: str) -> BadSchema:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return BadSchema(f"{where}{steps}: {reason}", param=where)


def _invalid(schema: Mapping[str, Any]) -> tuple[Path, str] | None:
    """Where it breaks the rules of JSON schema."""
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    kind = validator_for(schema)
    try:
        error = best_match(kind(kind.META_SCHEMA).iter_errors(schema))
    except RecursionError:
        return (), "is nested too deeply"
    return None if error is None else (tuple(error.absolute_path), error.message)


def _circular(schema: Mapping[str, Any]) -> tuple[Path, str] | None:
    """A part that refers to itself before it says anything; no value conforms to it."""
    parts: list[tuple[Path, Mapping[str, Any]]] = [((), schema)]
    sound: set[str] = set()
    try:
        while parts:
            path, part = parts.pop()
            if _leads_back(schema, part, frozenset(), sound):
                return path, "refers to itself alone"
            parts += [(path + steps, child) for steps, child in _children(part)]
    except RecursionError:
        return (), "is nested too deeply"
    return None


def _leads_back(schema: Any, part: Any, above: frozenset[str], sound: set[str]) -> bool:
    """Whether a part is one of those above it; ``sound``: references known to be none."""
    if not isinstance(part, Mapping):
        return False
    reference = part.get("$ref")
    if isinstance(reference, str) and reference not in sound:
        below = above | {reference}
        if reference in above or _leads_back(schema, referred(schema, reference), below, sound):
            return True
        sound.add(reference)
    both, one, either = (part.get(name) or () for name in ("allOf", "oneOf", "anyOf"))
    back = partial(_leads_back, schema, above=above, sound=sound)
    return any(map(back, both)) or any(each and all(map(back, each)) for each in (one, either))


def referred(schema: Any, reference: str) -> Any:
    """The part of a schema that a ``$ref`` into it names; None: it names none."""
    head, *steps = reference.split("/")
    part = schema if head == "#" else None
    for step in steps:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        part = part.get(name) if isinstance(part, Mapping) else None
    return part


def _unenforceable(schema: Mapping[str, Any]) -> tuple[Path, str] | None:
    """The deepest part that the grammar library refuses, with its reason."""
    reason = _refusal(schema)
    if reason is None:
        return None
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    path: Path = ()
    part = dict(schema)
    while True:
        for steps, child in _children(part):
            if (deeper := _refusal({**shared, **child})) is not None:
                path, part, reason = path + steps, dict(child), deeper
                break
        else:
            return path, reason


def _refusal(schema: Mapping[str, Any]) -> str | None:
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_lark(f"start: {json_of(schema)}\n")
    message = LLMatcher.validate_grammar(grammar)
    if not message or message.startswith("WARNING"):
        return None
    head, *more = message.splitlines()
    errors = (line for line in more if line.startswith("error: "))  # a pattern's, below a picture
    return " ".join([head.rpartition("JSON schema: ")[2], *itertools.islice(errors, 1)])


def _children(schema: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The schemas directly inside one, with the steps to them."""
    for name in (
        *("properties", "patternProperties", "$defs", "definitions"),
        *("anyOf", "oneOf", "allOf", "prefixItems"),
    ):
        for key, inner in _items(schema.get(name)):
            yield (name, key), inner
    for name in ("items", "additionalProperties", "not"):
        child = schema.get(name)
        if isinstance(child, Mapping):
            yield (name,), child


def _items(value: Any) -> Iterator[tuple[str | int, Mapping[str, Any]]]:
    pairs: Any = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list):
        pairs = enumerate(value)
    return ((key, child) for key, child in pairs if isinstance(child, Mapping))


@functools.lru_cache(maxsize=64)
def read_schema(text: str, where: str) -> Mapping[str, Any]:
    """A schema from its JSON, checked; see `check_schema`."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(where, (), f"is not JSON: {error}") from None
    check_schema(schema, where)
    assert isinstance(schema, dict), "a checked schema is an object"
    return schema
