"""Running states at one position, stacked so that their number does not grow with the layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from mlxnb.mlxlm.caches import Caches
from mlxnb.mlxlm.cells import of_kind


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """States of a model's state cells after the same tokens.

    ``stacks`` are their arrays, those of equal shape and dtype as one. ``forms`` says how each
    state is made of them: trees with an `_Array` where an array was.
    """

    stacks: list[mx.array]
    forms: list[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(stack.nbytes) for stack in self.stacks)


def freeze(caches: Caches) -> States:
    """A copy of all states, which must be computed as far as they are to go."""
    groups: dict[tuple[Any, ...], list[mx.array]] = {}
    forms = [_taken_apart(cell.state, groups) for cell in of_kind(caches, "state")]
    stacks = [mx.stack(arrays) for arrays in groups.values()]
    mx.eval(stacks)
    return States(stacks, forms)


def _taken_apart(state: Any, groups: dict[tuple[Any, ...], list[mx.array]]) -> Any:
    if isinstance(state, mx.array):
        key = (tuple(state.shape), state.dtype)
        number = list(groups).index(key) if key in groups else len(groups)
        group = groups.setdefault(key, [])
        group.append(state)
        return _Array(number, len(group) - 1)
    if isinstance(state, list | tuple):
        return type(state)([_taken_apart(part, groups) for part in state])
    return state


@dataclass(frozen=True, slots=True)
class _Array:
    """Stands for an array in a form."""

    stack: int
    place: int


def form_to_json(form: Any) -> Any:
    """A form in what JSON can hold."""
    if isinstance(form, _Array):
        return {"array": [form.stack, form.place]}
    if isinstance(form, tuple):
        return {"tuple": [form_to_json(part) for part in form]}
    return [form_to_json(part) for part in form] if isinstance(form, list) else form


def form_from_json(packed: Any) -> Any:
    """The form that was made into this; raises ``ValueError`` for anything else."""
    match packed:
        case {"array": [int(stack), int(place)]}:
            return _Array(stack, place)
        case {"tuple": list(parts)}:
            return tuple(map(form_from_json, parts))
        case list():
            return list(map(form_from_json, packed))
        case None | bool() | int() | float() | str():
            return packed
    raise ValueError("no form of a state")


def thaw(caches: Caches, states: States) -> None:
    """Give empty caches a copy of frozen states."""
    for cell, form in zip(of_kind(caches, "state"), states.forms, strict=True):
        cell.state = _put_together(form, states.stacks)


def _put_together(form: Any, stacks: list[mx.array]) -> Any:
    if isinstance(form, _Array):
        return stacks[form.stack][form.place]
    if isinstance(form, list | tuple):
        return type(form)([_put_together(part, stacks) for part in form])
    return form
