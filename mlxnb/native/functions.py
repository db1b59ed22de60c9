"""The kernels as functions, each with its twin in plain MLX.

A kernel refuses what it has no code for with ``ValueError`` or ``TypeError``; the twin then
answers, or says what is wrong in MLX's words.
"""

from __future__ import annotations

import mlx.core as mx

from mlxnb.native.extension import kernel

Mask = mx.array | str | None


def quantized_matmul(
    x: mx.array,
    weight: mx.array,
    scales: mx.array,
    biases: mx.array | None,
    bias: mx.array | None = None,
    *,
    group_size: int,
    bits: int,
) -> mx.array:
    """``x Wᵀ + bias`` with W quantised in MLX's affine mode.

    Parameters
    ----------
    x
        ``(..., depth)``, floating.
    weight, scales, biases
        As ``mx.quantize`` gives them for ``(rows, depth)``.
    bias
        ``(rows,)``.

    Returns
    -------
    mx.array
        ``(..., rows)``; kernels: 4 and 8 bits, groups of 32, 64 and 128.
    """
    try:
        return kernel("quantized_matmul")(x, weight, scales, biases, bias, group_size, bits)
    except (TypeError, ValueError):
        out = mx.quantized_matmul(x, weight, scales, biases, True, group_size, bits)
        return out if bias is None else out + bias


def linear(x: mx.array, weight: mx.array, bias: mx.array | None = None) -> mx.array:
    """``x Wᵀ + bias`` with a floating W ``(rows, depth)``, x ``(..., depth)``."""
    try:
        return kernel("linear")(x, weight, bias)
    except (TypeError, ValueError):
        return x @ weight.T if bias is None else mx.addmm(bias, x, weight.T)


def quantized_embedding(
    ids: mx.array,
    weight: mx.array,
    scales: mx.array,
    biases: mx.array | None,
    *,
    group_size: int,
    bits: int,
) -> mx.array:
    """Rows of a quantised table: ids of any shape become ``(..., depth)``, in the scales' type."""
    try:
        return kernel("quantized_embedding")(ids, weight, scales, biases, group_size, bits)
    except (TypeError, ValueError):
        picked = None if biases is None else biases[ids]
        return mx.dequantize(weight[ids], scales[ids], picked, group_size, bits)


def attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: Mask = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Grouped-query attention with online softmax; keys and values are read where they lie.

    Parameters
    ----------
    queries
        ``(batch, heads, length, dim)``.
    keys, values
        ``(batch, kv_heads, tokens, dim)``; slices of larger arrays are not copied.
    mask
        None, ``"causal"``, or boolean (True: seen) or additive, broadcast to
        ``(batch, heads, length, tokens)``.
    sinks
        ``(heads,)``: a logit for each head that takes part in the sum and has no value.
    """
    causal = isinstance(mask, str) and mask == "causal"
    try:
        array = None if causal else mask
        return kernel("attention")(queries, keys, values, scale, causal, 0, array, sinks)
    except (TypeError, ValueError):
        return mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=scale, mask=mask, sinks=sinks
        )


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last axis."""
    try:
        return kernel("rms_norm")(x, weight, eps)
    except (TypeError, ValueError):
        return mx.fast.rms_norm(x, weight, eps)


def log_softmax(x: mx.array) -> mx.array:
    """``x - log Σ eˣ`` over the last axis: logits ``(..., vocab)`` become log-probabilities."""
    try:
        return kernel("log_softmax")(x)
    except (TypeError, ValueError):
        return x - mx.logsumexp(x, axis=-1, keepdims=True)


def rope(
    x: mx.array,
    frequencies: mx.array,
    offset: int | mx.array = 0,
    *,
    traditional: bool = False,
    scale: float = 1.0,
) -> mx.array:
    """Rotary positions for ``(batch, heads, length, dim)``.

    ``frequencies`` is float32 ``(rotated / 2,)``, in radians per position; the offset is a number
    or ``(batch,)``.
    """
    try:
        return kernel("rope")(x, frequencies, offset, traditional, scale)
    except (TypeError, ValueError):
        return mx.fast.rope(
            x,
            2 * frequencies.size,
            traditional=traditional,
            base=None,
            scale=scale,
            offset=offset,
            freqs=1 / frequencies,
        )


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """``silu(gate) * up``, for arrays of one shape."""
    try:
        return kernel("gated")(gate, up)
    except (TypeError, ValueError):
        return gate * mx.sigmoid(gate) * up
