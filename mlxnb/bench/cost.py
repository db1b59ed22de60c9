"""What a model's tokens cost at the least: the terms of the roofline."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from mlxnb.bench.bed import Bed
from mlxnb.bench.figures import Cost
from mlxnb.models import safetensors
from mlxnb.models.folder import read_config, weight_files
from mlxnb.models.source import ModelSource


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Of a dense model with full attention.

    Weights count as they are in the file, whatever a library makes of them in memory; KV as this
    engine holds it. An input table that is not the output table too is not read whole.

    Attributes
    ----------
    weight_bytes, token_bytes
        Weights that a token reads, and one token's KV.
    weights, head
        Numbers in the layers' matrices, and in the output's.
    pair
        Operations of attention for a query and a key, in all layers.
    """

    weight_bytes: int
    token_bytes: int
    weights: int
    head: int
    pair: int

    def prefill(self, tokens: int) -> Cost:
        """Of each token of a prompt: the output's matrix counts for the last one alone."""
        operations = 2 * self.weights + 2 * self.head / tokens + self.pair * (tokens + 1) / 2
        return Cost(self.weight_bytes / tokens + self.token_bytes, operations)

    def decode(self, context: int, rows: int = 1) -> Cost:
        """Of each token that ``rows`` sequences decode together after ``context`` tokens."""
        read = self.weight_bytes / rows + context * self.token_bytes
        return Cost(read, 2 * (self.weights + self.head) + self.pair * context)


def cost_of(bed: Bed, source: ModelSource) -> ModelCost | None:
    """A loaded model's; None for experts, windows and recurrences, which cost other than this."""
    space = bed.core.store.space(bed.runtime.key)
    sizes = bed.core.owner.call(lambda: _matrices(bed.runtime.model))
    if not space.pool.layers or sizes is None:
        return None
    config = read_config(source.path)
    heads = int((config.get("text_config") or config)["num_attention_heads"])
    weights, head, tied = sizes
    pair = sum(2 * heads * (layer.key_dim + layer.value_dim) for layer in space.pool.layers)
    read = _file_bytes(source, without_input=not tied)
    return ModelCost(read, space.pool.token_bytes, weights, head, pair)


def _matrices(model: Any) -> tuple[int, int, bool] | None:
    """Numbers in the layers' matrices and in the output's, and whether the input table is that."""
    nn: Any = importlib.import_module("mlx.nn")
    weights = head = table = 0
    for name, module in model.named_modules():
        if "Switch" in type(module).__name__:
            return None
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
            table = _numbers(module)
        elif isinstance(module, nn.Linear | nn.QuantizedLinear):
            if name.endswith("lm_head"):
                head = _numbers(module)
            else:
                weights += _numbers(module)
    return weights, head or table, head == 0


def _numbers(module: Any) -> int:
    """Numbers in a matrix; packed ones count singly."""
    size: int = module.weight.size
    return size * 32 // module.bits if hasattr(module, "bits") else size


def _file_bytes(source: ModelSource, without_input: bool) -> int:
    total = 0
    for file in weight_files(source.path):
        for name, tensor in safetensors.read_header(file).items():
            if not (without_input and "embed_tokens." in name):
                total += tensor.nbytes
    return total
