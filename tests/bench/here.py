"""Doubles: a bench in this process, and a library whose runs take as long as it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlxnb.bench.runs import Run


class Here:
    """A bench whose object is in this process."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(self.made, *args, **kwargs)


class Library:
    """Takes ``prefill_s`` for each token of a prompt, and ``decode_s`` for each after it."""

    def __init__(self, prefill_s: float, decode_s: float) -> None:
        self.prefill_s, self.decode_s = prefill_s, decode_s
        self.given: list[list[int]] = []

    def run(self, prompt: list[int], decoded: int, keep: bool = False) -> Run:
        new = len(prompt)
        if keep:
            shared = zip(self.given[-1], prompt, strict=False)
            new -= sum(a == b for a, b in shared)
        self.given.append(prompt)
        return Run(new * self.prefill_s, decoded * self.decode_s, decoded)
