"""Which tokens of an answer stay in an exact history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlxnb.engine.request import Request


def kept_output(request: Request, encode: Callable[[str], list[int]]) -> list[int]:
    """The tokens of an answer without its end token, which the template writes.

    Of an answer that a stop string cut: the longest run of tokens whose text is visible, and
    what is visible beyond them encoded anew.
    """
    tokens = list(request.generated)
    if tokens and tokens[-1] in request.end_tokens:
        tokens.pop()
    if request.machine.stop_sequence is None:
        return tokens
    visible = _text(request.detokenizer, tokens)[: request.machine.visible_raw_length]
    count = _first_beyond(request.detokenizer, tokens, len(visible))
    while not visible.startswith(text := _text(request.detokenizer, tokens[:count])):
        count -= 1
    rest = visible[len(text) :]
    return tokens[:count] + (encode(rest) if rest else [])


def _first_beyond(detokenizer: Any, tokens: Sequence[int], length: int) -> int:
    """How many tokens are fed when the streamed text is longer than that, or all of them."""
    detokenizer.reset()
    for count, token in enumerate(tokens, 1):
        detokenizer.add_token(token)
        if len(detokenizer.text) > length:
            return count
    return len(tokens)


def _text(detokenizer: Any, tokens: Sequence[int]) -> str:
    """The whole text of some tokens; nothing is held back."""
    detokenizer.reset()
    for token in tokens:
        detokenizer.add_token(token)
    detokenizer.finalize()
    return str(detokenizer.text)
