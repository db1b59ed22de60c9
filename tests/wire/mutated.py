"""Bodies that were right once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([2**31, 2**63, -(2**70), 10**30, 0.5, -0.5, 1e308, float("nan")]),
    st.sampled_from(["", " ", "text", "none", "user", "tool", "\ud800", "é🙂", "x" * 300, "{}"]),
)
_KEYS = st.sampled_from(["type", "text", "content", "role", "name", "id", "input", "\ud800", ""])
VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to everything inside."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    return [path, *(place for key, held in inner for place in places(held, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, good: Sequence[dict[str, Any]]) -> Any:
    """One of the bodies, in which up to three values are others, gone, or there twice."""
    body = copy.deepcopy(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(body)))
        if not path:
            return draw(VALUES)
        holder = body
        for step in path[:-1]:
            holder = holder[step]
        change = draw(st.sampled_from(["other", "gone", "twice"]))
        if change == "other":
            holder[path[-1]] = draw(VALUES)
        elif change == "gone":
            del holder[path[-1]]
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
    return body
