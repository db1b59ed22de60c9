"""A model and its tokenizer in memory.

Tokenizers can be loaded on any thread. Models only on the thread that will run them: MLX binds
arrays that are not evaluated yet to the thread that made them.
"""

from __future__ import annotations

import dataclasses
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlxnb.errors import MlxnbError, ModelBroken, NotEnoughMemory, UnsupportedModel
from mlxnb.models.folder import json_template, read_config
from mlxnb.models.imported import read_manifest
from mlxnb.models.info import ModelInfo, describe
from mlxnb.models.memory import available_bytes, estimate_bytes, on_cpu
from mlxnb.models.source import ModelSource

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class LoadedModel:
    """A model in memory: mlx-lm's module and tokenizer, its config, and facts about it."""

    model: Any
    config: dict[str, Any]
    tokenizer: Any
    info: ModelInfo


def load_tokenizer(source: ModelSource) -> Any:
    """The model's ``mlx_lm.tokenizer_utils.TokenizerWrapper``; touches no MLX array.

    Raises
    ------
    ModelBroken
        The tokenizer's files cannot be read, or need code of their own.
    """
    from mlx_lm.utils import load_config
    from mlx_lm.utils import load_tokenizer as load

    try:
        ends = load_config(source.path).get("eos_token_id")
        tokenizer: Any = load(source.path, {"trust_remote_code": False}, eos_token_ids=ends)
    except Exception as error:
        raise ModelBroken(f"the tokenizer in {source.path} cannot be loaded: {error}") from error
    template = json_template(source.path)
    if not tokenizer.has_chat_template and template is not None:
        tokenizer.chat_template = template
        tokenizer.has_chat_template = True
    return tokenizer


def vocabulary(config: dict[str, Any], tokenizer: Any) -> int:
    """Width of the logits, which may be larger than the tokenizer."""
    size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    return int(size or len(tokenizer))


def build(source: ModelSource, progress: Progress | None = None) -> LoadedModel:
    """Read a model into memory, a layer at a time.

    Must be called on the thread that will run the model. On a CPU device all floating
    parameters become float32; packed weights stay. A failed call leaves nothing behind.

    Parameters
    ----------
    source
        What to load.
    progress
        Called with bytes read so far and in total; may raise to give up.

    Raises
    ------
    ModelBroken
        Weights do not fit the config, or the adapter does not fit the model.
    UnsupportedModel
        mlx-lm has no such architecture.
    NotEnoughMemory
        The device refused an allocation.
    """
    import mlx.core as mx

    info = describe(source)
    tokenizer = load_tokenizer(source)
    try:
        model, config = _read(source, progress or _silent)
    except BaseException as error:
        # frames of the traceback hold the half-read weights
        traceback.clear_frames(error.__traceback__)
        mx.clear_cache()
        raise _explained(source, error) from None
    info = dataclasses.replace(info, loaded=True, bytes=_nbytes(model))
    return LoadedModel(model, config, tokenizer, info)


def _silent(done: int, total: int) -> None:
    pass


def _read(source: ModelSource, progress: Progress) -> tuple[Any, dict[str, Any]]:
    from mlx_lm.utils import load_adapters, load_model

    model, config = load_model(source.path, lazy=True, trust_remote_code=source.trust_model_code)
    if source.adapter is not None:
        model = load_adapters(model, str(source.adapter))
    model.eval()
    _cast(model, source)
    _evaluate(model, progress)
    if on_cpu():
        _accelerate(model)
    return model, config


def _accelerate(model: Any) -> None:
    """Let a model on the CPU use the native kernels; once a process, say why it does not."""
    from mlxnb import native

    native.accelerate(model)
    reason = native.reason()
    if reason is not None and native.wanted():
        warnings.warn(reason, RuntimeWarning, stacklevel=2)


def _cast(model: Any, source: ModelSource) -> None:
    """Give floating parameters the dtype that activations are to have.

    GGUF files keep norms in float32 beside half weights; on a GPU that mix would make every
    activation float32, so an import becomes half throughout there.
    """
    import mlx.core as mx
    from mlx.utils import tree_map

    dtype = mx.float32 if on_cpu() else _import_dtype(source)
    if dtype is None:
        return

    def cast(parameter: Any) -> Any:
        floating = mx.issubdtype(parameter.dtype, mx.floating)
        return parameter.astype(dtype) if floating else parameter

    model.update(tree_map(cast, model.parameters()))


def _import_dtype(source: ModelSource) -> Any:
    import mlx.core as mx

    if read_manifest(source.path) is None:
        return None
    return getattr(mx, read_config(source.path)["dtype"])


def _evaluate(model: Any, progress: Progress) -> None:
    """Read parameters group by group, so that a cast holds no more than a layer twice."""
    import mlx.core as mx

    groups = _groups(model)
    total = _nbytes(model)
    done = 0
    progress(done, total)
    for parameters in groups:
        mx.eval(parameters)
        done += sum(parameter.nbytes for parameter in parameters)
        progress(done, total)


def _groups(model: Any) -> list[list[Any]]:
    """The model's parameters, each layer's together and what stands outside of layers alone."""
    from mlx.utils import tree_flatten

    groups: dict[str, list[Any]] = {}
    flat: Any = tree_flatten(model.parameters())
    for name, parameter in flat:
        head, found, tail = name.partition("layers.")
        key = f"{head}{found}{tail.partition('.')[0]}" if found else name
        groups.setdefault(key, []).append(parameter)
    return list(groups.values())


def _nbytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    flat: Any = tree_flatten(model.parameters())
    return sum(int(parameter.nbytes) for _, parameter in flat)


def _explained(source: ModelSource, error: BaseException) -> BaseException:
    """The error as a user should see it; interrupts and errors of ours as they are."""
    if isinstance(error, MlxnbError) or not isinstance(error, Exception):
        return error
    message = str(error)
    if isinstance(error, ValueError) and "not supported" in message:
        return UnsupportedModel(f"{source.name}: {message}")
    if isinstance(error, MemoryError | RuntimeError) and "alloc" in message.lower():
        return NotEnoughMemory(
            f"{source.name} did not fit in memory: {message}",
            estimate_bytes(source),
            available_bytes(),
        )
    return ModelBroken(f"{source.name} cannot be loaded from {source.path}: {message}")
