"""The only door to mlx-lm's internals: KV caches and the batch generator.

What is used here is not mlx-lm's public interface, so ``check()`` looks for it at start-up and
an upgrade of mlx-lm is this file's work alone. Measured against mlx-lm 0.32.2.

Shapes: a layer's keys are ``(rows, heads, tokens, head_dim)``; ``tokens`` beyond ``offset`` are
spare capacity.
"""

from __future__ import annotations

import functools
import importlib
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx


def _import(*names: str) -> list[Any]:
    """Modules of mlx-lm, the process's limit of open files left as it is.

    ``mlx_lm.utils`` sets it to 2048 of 4096 when imported: that lowers most hard limits for good,
    and fails where the hard limit is below 4096.
    """
    original = resource.setrlimit
    resource.setrlimit = lambda which, limits: None
    try:
        return [importlib.import_module(f"mlx_lm.{name}") for name in names]
    finally:
        resource.setrlimit = original


# by name: the package's attribute `generate` is a function
_cache, _generate = _import("models.cache", "generate")

STEP: int = _cache.KVCache.step
"""Tokens by which a contiguous cache grows."""

_NO_LIMIT = 2**31 - 1
_DECODING = (
    *("uids", "prompt_cache", "tokens", "samplers", "fallback_sampler", "logits_processors"),
    *("_step", "_token_context", "_current_tokens", "_current_logprobs"),
    *("_next_tokens", "_next_logprobs"),
)
_GENERATOR = ("insert", "next", "remove", "extract_cache", "prompt_cache_nbytes", "close")

Caches = list[Any]
Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]
Normalizer = Callable[[mx.array], mx.array]


def check() -> None:
    """Raise ``ImportError`` if this mlx-lm lacks what this module uses; makes MLX arrays."""
    probe = _generate.GenerationBatch.empty(None, _generate.greedy_sampler)
    wanted = {
        "KVCache": (_cache.KVCache(), ("keys", "values", "offset", "step", "trim", "state")),
        "GenerationBatch": (probe, _DECODING),
        "BatchGenerator": (_generate.BatchGenerator, _GENERATOR),
        "TokenBuffer": (_cache.TokenBuffer, ("update_and_fetch",)),
    }
    for name, (owner, attributes) in wanted.items():
        for attribute in attributes:
            if not hasattr(owner, attribute):
                raise ImportError(
                    f"this mlx-lm has no {name}.{attribute}; mlxnb works with mlx-lm 0.32 "
                    "from 0.32.2 on: pip install 'mlx-lm>=0.32.2,<0.33'"
                )


# --- caches of one sequence -------------------------------------------------------------------


def new_caches(model: Any) -> Caches:
    """Empty caches of one sequence, a cache a layer, as the model wants them."""
    return list(_cache.make_prompt_cache(model))


def rewindable(caches: Caches) -> bool:
    """Whether every layer keeps all its keys, so that any prefix of it can be reused."""
    return bool(caches) and all(type(c) is _cache.KVCache for c in caches)


def evaluate(caches: Caches) -> None:
    """Compute what is pending in the caches."""
    mx.eval([c.state for c in caches])


def nbytes(caches: Caches) -> int:
    """Bytes that the caches hold, spare capacity included."""
    return sum(0 if c.empty() else int(c.nbytes) for c in caches)


def lengths(caches: Caches) -> set[int]:
    """The layers' numbers of tokens: one number, if the caches are sound."""
    return {c.offset for c in caches if hasattr(c, "offset")}


def trim(caches: Caches, length: int) -> None:
    """Forget what lies beyond ``length`` tokens; nothing is copied."""
    for cache in caches:
        cache.trim(cache.offset - length)


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Shape of one layer's KV of one token: ``(heads, key_dim)`` and ``(heads, value_dim)``."""

    heads: int
    key_dim: int
    value_dim: int
    dtype: mx.Dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one token in this layer."""
        return self.heads * (self.key_dim + self.value_dim) * int(self.dtype.size)


def shapes(caches: Caches) -> list[LayerShape]:
    """The layers' shapes; the caches hold at least one token."""
    return [
        LayerShape(c.keys.shape[1], c.keys.shape[3], c.values.shape[3], c.keys.dtype)
        for c in caches
    ]


def capacity(caches: Caches) -> int:
    """Tokens that contiguous caches have room for."""
    return min(0 if c.keys is None else int(c.keys.shape[2]) for c in caches)


def widen(caches: Caches, capacity: int) -> None:
    """Give contiguous caches that hold something room for ``capacity`` tokens.

    mlx-lm would let them grow by itself, a step a chunk, to sizes that nobody has reserved. A
    layer at a time, so that no more than one is there twice.
    """
    for cache in caches:
        spare = capacity - cache.keys.shape[2]
        if spare > 0:
            cache.keys = _widened(cache.keys, spare)
            cache.values = _widened(cache.values, spare)
            mx.eval(cache.keys, cache.values)


def _widened(array: mx.array, spare: int) -> mx.array:
    rows, heads, _, dim = array.shape
    return mx.concatenate([array, mx.zeros((rows, heads, spare, dim), array.dtype)], axis=2)


def read(caches: Caches, layer: int, start: int, end: int) -> tuple[mx.array, mx.array]:
    """Keys and values ``(heads, end - start, dim)`` of one layer; a paged one's are copies."""
    cache = caches[layer]
    if hasattr(cache, "keys_and_values"):
        keys, values = cache.keys_and_values()
        return keys[0, :, start:end], values[0, :, start:end]
    return cache.keys[0, :, start:end], cache.values[0, :, start:end]


def from_arrays(model: Any, layers: Sequence[tuple[mx.array, mx.array]], length: int) -> Caches:
    """Caches of ``length`` tokens over arrays ``(1, heads, capacity, dim)``, capacity ≥ length."""
    caches = new_caches(model)
    for cache, (keys, values) in zip(caches, layers, strict=True):
        cache.keys, cache.values, cache.offset = keys, values, length
    return caches


def token_buffer(tokens: list[int]) -> Any:
    """mlx-lm's growing token array: ``update_and_fetch((n,) array) → (all,) array``."""
    return _cache.TokenBuffer(tokens)


# --- several sequences ------------------------------------------------------------------------


class RowStep(NamedTuple):
    """One row's part of a batch step: its token, which is in its caches by now.

    ``logprobs`` is ``(vocab,)``, the distribution that the token was drawn from.
    """

    uid: int
    token: int
    logprobs: mx.array


class Batch:
    """Continuous batching over mlx-lm's ``BatchGenerator``: rows join and leave between steps.

    A row is given as its caches, the tokens in them, and one token that is not yet in them. It
    never ends by itself: whoever reads its tokens takes it out. After any exception out of
    ``step`` the state is void (rows that were not at fault get duplicated tokens): drop it.

    Parameters
    ----------
    normalize
        What makes log-probabilities of logits ``(rows, vocab)``.
    """

    def __init__(self, model: Any, normalize: Normalizer, rows: int = 64) -> None:
        self._generator = _generate.BatchGenerator(
            model,
            completion_batch_size=rows,
            prefill_batch_size=rows,
            stream=mx.default_stream(mx.default_device()),
        )
        decoding = self._generator._generation_batch
        decoding._step = functools.partial(_step, decoding, normalize)

    def join(
        self,
        caches: Caches,
        tokens: list[int],
        pending: int,
        sampler: Sampler,
        processors: Sequence[Processor],
    ) -> int:
        """Add a row; its KV is copied into the batch at the next step. Returns its uid.

        It gives its first token at the step after that one.
        """
        uids: list[int] = self._generator.insert(
            [[pending]],
            max_tokens=[_NO_LIMIT],
            caches=[caches],
            all_tokens=[list(tokens)],
            samplers=[sampler],
            logits_processors=[list(processors)],
        )
        return uids[0]

    def step(self) -> list[RowStep]:
        """One decode step of all rows."""
        _, generated = self._generator.next()
        return [RowStep(r.uid, r.token, r.logprobs) for r in generated]

    def leave(self, uid: int) -> tuple[Caches, list[int], int | None]:
        """Take a row out: its caches, the tokens in them, and its next token if it has one."""
        pending = self._pending(uid)
        caches, tokens = self.copy(uid)
        self._generator.remove([uid])
        return caches, tokens, pending

    def copy(self, uid: int) -> tuple[Caches, list[int]]:
        """A copy of a row's caches and the tokens in them; the row stays."""
        caches, tokens = self._generator.extract_cache([uid])[uid]
        for cache in caches:  # what is not computed yet would keep the whole batch
            mx.eval(cache.state)
        return caches, list(tokens)

    def sequences(self) -> dict[int, Any]:
        """The block tables of rows on paged caches, by uid; after a step they are others."""
        decoding = self._generator._generation_batch
        rows = decoding.prompt_cache[0].rows() if decoding.uids else []
        return dict(zip(decoding.uids, rows, strict=True))

    def _pending(self, uid: int) -> int | None:
        generation = self._generator._generation_batch
        if uid not in generation.uids:
            return None
        return int(generation._next_tokens[generation.uids.index(uid)].item())

    @property
    def nbytes(self) -> int:
        """Bytes of all rows' KV."""
        return int(self._generator.prompt_cache_nbytes)

    def close(self) -> None:
        """Give back what the generator set."""
        self._generator.close()


def _step(batch: Any, normalize: Normalizer) -> tuple[list[int], list[mx.array]]:
    """``GenerationBatch._step`` with another ``normalize``: mlx-lm's is slow on a CPU.

    Draws and begins to compute each row's next token; returns the tokens that it fed, with their
    log-probabilities.
    """
    inputs = batch._current_tokens = batch._next_tokens
    batch._current_logprobs = batch._next_logprobs
    logits = batch.model(inputs[:, None], cache=batch.prompt_cache)[:, -1, :]
    logits, contexts = _processed(batch, inputs, logits)
    logprobs = normalize(logits)
    batch._next_tokens = _drawn(batch, logprobs)
    batch._next_logprobs = list(logprobs)
    mx.async_eval(batch._next_tokens, batch._next_logprobs, contexts)
    mx.eval(inputs, batch._current_logprobs)
    fed: list[int] = inputs.tolist()
    for tokens, token in zip(batch.tokens, fed, strict=True):
        tokens.append(token)
    return fed, batch._current_logprobs


def _processed(batch: Any, inputs: mx.array, logits: mx.array) -> tuple[mx.array, list[mx.array]]:
    """Logits after the rows' processors, and the contexts that those looked at."""
    if not any(batch.logits_processors):
        return logits, []
    rows, contexts = [], []
    for number, processors in enumerate(batch.logits_processors):
        row = logits[number : number + 1]
        if processors:
            context = batch._token_context[number].update_and_fetch(inputs[number : number + 1])
            contexts.append(context)
            for processor in processors:
                row = processor(context, row)
        rows.append(row)
    return mx.concatenate(rows, axis=0), contexts


def _drawn(batch: Any, logprobs: mx.array) -> mx.array:
    """A token for each row; one call where the rows share a sampler."""
    fallback = batch.fallback_sampler
    samplers: list[Sampler] = [fallback if s is None else s for s in batch.samplers]
    if all(sampler is samplers[0] for sampler in samplers):
        together: mx.array = samplers[0](logprobs)
        return together
    rows = [sampler(logprobs[n : n + 1]) for n, sampler in enumerate(samplers)]
    return mx.concatenate(rows, axis=0)
