"""Facts about a model, without its weights being read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mlxnb.models import safetensors
from mlxnb.models.fingerprint import fingerprint
from mlxnb.models.folder import read_config, weight_files
from mlxnb.models.memory import estimate_bytes
from mlxnb.models.source import ModelSource

Reuse = Literal["prefix", "checkpoint", "none"]
"""How prefixes of a model's KV are reused: any, those that end at a checkpoint, or none."""

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8"}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One row of the models frame; None: not known yet.

    Attributes
    ----------
    name, path
        The name that it is loaded by, and its folder (None: not fetched yet).
    family
        The config's ``model_type``.
    parameters
        Number of weights, packed ones counted singly.
    quantization
        The commonest bits and group size, ``4-bit g32``, or the dtype, ``bfloat16``.
    context_length
        Positions that the model was made for, in tokens.
    bytes
        Memory that the weights take once loaded.
    loaded, batchable, reuse
        Filled in by the engine: whether it is loaded, whether its rows can share a batch, and
        how its prefixes are reused.
    fingerprint
        Identity of weights, tokenizer, template and adapter.
    adapter
        The folder of its adapter.
    kv_bits
        Bits in which keys and values are kept; None: they are as they are computed.
    """

    name: str
    path: Path | None = None
    family: str | None = None
    parameters: int | None = None
    quantization: str | None = None
    context_length: int | None = None
    bytes: int | None = None
    loaded: bool = False
    batchable: bool | None = None
    reuse: Reuse | None = None
    fingerprint: str | None = None
    adapter: Path | None = None
    kv_bits: int | None = None


def describe(source: ModelSource) -> ModelInfo:
    """Facts about a model from its config and its weights' headers.

    Raises
    ------
    ModelBroken
        Config or a header cannot be read.
    """
    config = read_config(source.path)
    tensors: dict[str, safetensors.Tensor] = {}
    for file in weight_files(source.path):
        tensors.update(safetensors.read_header(file))
    return ModelInfo(
        name=source.name,
        path=source.path,
        family=config["model_type"],
        parameters=count_parameters(tensors, config),
        quantization=quantization(tensors, config),
        context_length=context_length(config),
        bytes=estimate_bytes(source),
        fingerprint=fingerprint(source),
        adapter=source.adapter,
        kv_bits=source.kv_bits,
    )


def context_length(config: dict[str, Any]) -> int | None:
    """Positions that the model was made for, from whichever key its family uses."""
    for place in (config, config.get("text_config") or {}):
        for key in (
            "max_position_embeddings",
            "model_max_length",
            "n_positions",
            "n_ctx",
            "max_seq_len",
        ):
            if isinstance(place.get(key), int):
                return int(place[key])
    return None


def count_parameters(tensors: dict[str, safetensors.Tensor], config: dict[str, Any]) -> int:
    """Number of weights: packed integers singly, their scales and biases not at all."""
    packed = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    count = 0
    for name, tensor in tensors.items():
        stem, _, leaf = name.rpartition(".")
        if stem in packed and leaf in ("scales", "biases"):
            continue
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if stem in packed and leaf == "weight":
            count += tensors[f"{stem}.scales"].size * _layer(config, stem)["group_size"]
        else:
            count += tensor.size
    return count


def quantization(tensors: dict[str, safetensors.Tensor], config: dict[str, Any]) -> str:
    """How the largest share of the weights is stored."""
    shares: dict[str, int] = {}
    for name, tensor in tensors.items():
        stem, _, leaf = name.rpartition(".")
        if leaf == "weight":
            kind = _packing(config, stem) if f"{stem}.scales" in tensors else _dtype(tensor)
            shares[kind] = shares.get(kind, 0) + tensor.nbytes
    return max(shares, key=lambda kind: shares[kind], default="unknown")


def _dtype(tensor: safetensors.Tensor) -> str:
    return _DTYPES.get(tensor.dtype, tensor.dtype.lower())


def _packing(config: dict[str, Any], stem: str) -> str:
    layer = _layer(config, stem)
    if layer.get("mode", "affine") != "affine":
        return str(layer["mode"])
    return f"{layer['bits']}-bit g{layer['group_size']}"


def _layer(config: dict[str, Any], stem: str) -> dict[str, Any]:
    """The quantization of one layer: its own entry, or the model's."""
    settings = config.get("quantization") or config.get("quantization_config") or {}
    usual = {"group_size": 64, "bits": 4, **settings}
    own = settings.get(stem)
    return {**usual, **own} if isinstance(own, dict) else usual
