"""The loop of a request that runs alone: chunked prefill, then decode one token ahead.

Phases: (1) ``prefill`` puts all but the last token of the sequence into the caches, a chunk a
call; (2) ``Solo`` feeds the last one; (3) each ``step`` feeds the token that was drawn, so that
the next is being computed while this one is read and turned into text.
"""

from __future__ import annotations

import time

import mlx.core as mx

from mlxnb import mlxlm
from mlxnb.engine.logprobs import normalized
from mlxnb.engine.request import Request
from mlxnb.engine.runtime import Runtime

CLEAR_EVERY = 256
"""Decode steps between two times that MLX gives back freed memory, as in mlx-lm's loop."""


def prefill(runtime: Runtime, request: Request) -> int:
    """Compute one chunk of the sequence; returns how many tokens are left before the last.

    The last token is left to the decode, unless there is to be none.
    """
    live = request.live
    assert live is not None and live.caches is not None
    todo = request.tokens[live.length :]
    if not request.prefill_only:
        todo.pop()
    chunk = todo[: runtime.rate.chunk]
    if chunk:
        begin = time.perf_counter()
        runtime.model(mx.array([chunk]), cache=live.caches)
        mlxlm.evaluate(live.caches)
        runtime.rate.note(len(chunk), time.perf_counter() - begin)
        mx.clear_cache()
        request.fed(chunk)
        request.record.prefill_chunks += 1
        request.progress()
    return len(todo) - len(chunk)


class Solo:
    """Decode of one request on its own caches.

    Parameters
    ----------
    pending
        A token that was drawn already and is not in the caches (a row that comes out of a
        batch); None: the sequence's last token is fed first.
    """

    def __init__(self, runtime: Runtime, request: Request, pending: int | None = None) -> None:
        live = request.live
        assert live is not None and live.caches is not None
        self.request = request
        self._model, self._caches = runtime.model, live.caches
        self._steps = 0
        self._context = None
        if request.processors:
            self._context = mlxlm.token_buffer(request.tokens[: live.length])
        if pending is not None:
            self._drawn: mx.array | None = mx.array([pending], dtype=mx.uint32)
        else:
            last = (request.generated or request.prompt)[-1]
            self._drawn = self._draw(mx.array([last], dtype=mx.uint32))
            request.fed([last])

    def _draw(self, token: mx.array) -> mx.array:
        """Feed ``(1,)`` token, return the ``(1,)`` next one, being computed."""
        logits = self._model(token[None], cache=self._caches)[:, -1, :]
        if self._context is not None:
            context = self._context.update_and_fetch(token)
            for processor in self.request.processors:
                logits = processor(context, logits)
        assert self.request.sampler is not None
        drawn = self.request.sampler(normalized(logits))
        mx.async_eval(drawn)
        return drawn

    def step(self) -> int:
        """The next token; the one after it is under way unless this must be the last."""
        drawn = self._drawn
        assert drawn is not None, "a settled loop takes no step"
        following = self._draw(drawn) if self.request.remaining > 1 else None
        token = _read(drawn)
        if following is not None:
            self.request.fed([token])
        self._drawn = following
        self._steps += 1
        if self._steps % CLEAR_EVERY == 0:
            mx.clear_cache()
        return token

    def settle(self) -> int | None:
        """The token that was drawn last, without drawing another; the loop ends here."""
        drawn, self._drawn = self._drawn, None
        return None if drawn is None else _read(drawn)


def _read(drawn: mx.array) -> int:
    token = drawn.item()
    assert isinstance(token, int), "a token is a whole number"
    return token
