"""How the next token is chosen: sampling options, seeded samplers and logits processors.

Filters are mlx-lm's; the draw is ours, with an explicit key for each (seed, position), so that a
seed gives the same tokens alone and in a batch.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from mlxnb.errors import InvalidOption

if TYPE_CHECKING:
    import mlx.core as mx

DEFAULT_MAX_TOKENS = 1024
COLDEST = 1e-4
"""Lower temperatures are greedy: dividing by them leaves the range of half precision."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Options of one request; None: not said here, the next in line decides.

    The order is request, session, the model's own generation_config if it asks for sampling, and
    last greedy. Penalties look at the whole prompt, its cached part included, and the output.
    ``logprobs`` asks for the log-probability of each token that is generated, and of so many of
    the likeliest beside it.

    Raises
    ------
    InvalidOption
        A value is out of its range; the message names both.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    n: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high, whole) in _RANGES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _number(name, value, low, high, whole))
        object.__setattr__(self, "stop", _strings(self.stop))
        object.__setattr__(self, "logit_bias", _bias(self.logit_bias))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Sampling:
        """Options from keywords; an unknown one raises ``InvalidOption`` naming those there are."""
        known = {f.name for f in dataclasses.fields(cls)}
        for name in options:
            if name not in known:
                raise InvalidOption(f"no sampling option {name!r}; there are {sorted(known)}")
        return cls(**options)

    def over(self, other: Sampling) -> Sampling:
        """These options, and ``other``'s where these say nothing."""
        mine = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        theirs = {f.name: getattr(other, f.name) for f in dataclasses.fields(self)}
        return Sampling(**{k: theirs[k] if v is None else v for k, v in mine.items()})

    def settled(self) -> Sampling:
        """Nothing left open: greedy unless a temperature is set, a seed drawn where it matters."""
        defaults = Sampling(
            temperature=0.0, max_tokens=DEFAULT_MAX_TOKENS, seed=secrets.randbits(32), stop=(), n=1
        )
        return self.over(defaults)


_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0.0, 100.0, False),
    "top_p": (0.0, 1.0, False),
    "top_k": (0, 2**31 - 1, True),
    "min_p": (0.0, 1.0, False),
    "repetition_penalty": (0.01, 100.0, False),
    "presence_penalty": (-100.0, 100.0, False),
    "frequency_penalty": (-100.0, 100.0, False),
    "seed": (0, 2**64 - 1, True),
    "max_tokens": (1, 2**31 - 1, True),
    "n": (1, 128, True),
    "logprobs": (0, 20, True),
}
"""Lowest value, highest value, and whether only whole numbers will do."""


def _number(name: str, value: Any, low: float, high: float, whole: bool) -> int | float:
    number = _plain(value, whole)
    if number is None:
        kind = "an integer" if whole else "a number"
        raise InvalidOption(f"{name} is {kind} in [{low}, {high}], not {value!r}")
    if not low <= number <= high:  # NaN too
        raise InvalidOption(f"{name} lies in [{low}, {high}], {value!r} does not")
    return number


def _plain(value: Any, whole: bool = False) -> int | float | None:
    """A number of Python's own (NumPy's integers are no ints); None if it is none of that kind."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return None
    return int(value) if isinstance(value, Integral) else float(value)


def _strings(stop: Any) -> tuple[str, ...] | None:
    if stop is None or isinstance(stop, str):
        return None if stop is None else (stop,)
    strings = tuple(stop) if isinstance(stop, Iterable) else (stop,)
    if not all(isinstance(s, str) for s in strings):
        raise InvalidOption(f"stop is a string or a list of strings, not {stop!r}")
    return strings


def _bias(bias: Any) -> dict[int, float] | None:
    if bias is None:
        return None
    pairs = bias.items() if isinstance(bias, Mapping) else [(None, None)]
    plain = {_plain(token, whole=True): _plain(value) for token, value in pairs}
    if None in plain or not all(v is not None and math.isfinite(v) for v in plain.values()):
        raise InvalidOption("logit_bias maps token ids (integers) to numbers")
    return {int(token or 0): float(value or 0) for token, value in plain.items()}


class Sampler:
    """Chooses a token from logprobs ``(1, vocab)``, float; returns ``(1,)`` uint32.

    ``position`` is the number of tokens that the request has drawn; set it back to draw again.
    A fault in a filter is kept in ``fault`` and ends this request alone: the batch goes on.
    ``greedy``: it takes the likeliest, as `likeliest` does.
    """

    def __init__(self, sampling: Sampling, vocab: int) -> None:
        self.position = 0
        self.fault: Exception | None = None
        self._temperature = sampling.temperature or 0.0
        self.greedy = self._temperature < COLDEST or sampling.top_p == 0
        self._seed = (sampling.seed or 0).to_bytes(8, "little")
        self._filters = _filters(sampling, vocab)

    def __call__(self, logprobs: mx.array) -> mx.array:
        """The next token."""
        import mlx.core as mx

        position, self.position = self.position, self.position + 1
        if self.greedy or self.fault is not None:
            return likeliest(logprobs)
        try:
            for keep in self._filters:
                logprobs = keep(logprobs)
            scaled = logprobs * (1.0 / self._temperature)
            return mx.random.categorical(scaled, key=self._key(position))
        except Exception as error:
            self.fault = error
            return likeliest(logprobs)

    def _key(self, position: int) -> mx.array:
        """A key of its own for each seed and position, as ``mx.random.key`` makes them."""
        import mlx.core as mx

        drawn = blake2b(self._seed + position.to_bytes(8, "little"), digest_size=8).digest()
        return mx.random.key(int.from_bytes(drawn, "little"))


def likeliest(logprobs: mx.array) -> mx.array:
    """The likeliest tokens ``(rows,)``. One function: mlx-lm calls it once for all its rows."""
    import mlx.core as mx

    return mx.argmax(logprobs, axis=-1)


def _filters(sampling: Sampling, vocab: int) -> list[Callable[[mx.array], mx.array]]:
    """mlx-lm's filters in mlx-lm's order; one that would keep everything is left out."""
    from mlx_lm import sample_utils

    top_p, min_p, top_k = sampling.top_p, sampling.min_p, sampling.top_k
    filters: list[Callable[[mx.array], mx.array]] = []
    if top_p is not None and 0 < top_p < 1:
        filters.append(lambda x: sample_utils.apply_top_p(x, top_p))
    if min_p:
        filters.append(lambda x: sample_utils.apply_min_p(x, min_p))
    if top_k and top_k < vocab:
        filters.append(lambda x: sample_utils.apply_top_k(x, top_k))
    return filters


class Processor:
    """A logits processor ``(tokens (n,), logits (1, vocab)) → (1, vocab)`` that keeps its fault.

    mlx-lm's batch is void after an exception; so it is kept in ``fault`` instead, and the request
    ended after the step. What it returns must fit into the batch beside the other rows.
    """

    def __init__(self, inner: Callable[[mx.array, mx.array], mx.array]) -> None:
        self.fault: Exception | None = None
        self._inner = inner

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """The logits as the inner processor wants them; after a fault, as they are."""
        if self.fault is not None:
            return logits
        try:
            processed = self._inner(tokens, logits)
            if (shape := getattr(processed, "shape", None)) != logits.shape:
                raise ValueError(f"a logits processor returned {shape}, not {logits.shape}")
            return processed.astype(logits.dtype)
        except Exception as error:
            self.fault = error
            return logits


def make_processors(sampling: Sampling, context: int) -> list[Processor]:
    """Bias and penalties over a context of up to ``context`` tokens."""
    from mlx_lm.sample_utils import make_logits_processors

    repetition = sampling.repetition_penalty
    inner = make_logits_processors(
        logit_bias=dict(sampling.logit_bias) if sampling.logit_bias else None,
        repetition_penalty=None if repetition == 1 else repetition,
        repetition_context_size=context,
        presence_penalty=sampling.presence_penalty,
        presence_context_size=context,
        frequency_penalty=sampling.frequency_penalty,
        frequency_context_size=context,
    )
    return [Processor(p) for p in inner]
