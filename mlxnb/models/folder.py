"""Whether a folder holds a whole mlx-lm model, from its files' names, sizes and headers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mlxnb.errors import ModelBroken, UnsupportedModel
from mlxnb.models import safetensors

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")
_SHARD = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")


def check_folder(path: Path, trust_model_code: bool = False) -> None:
    """Check that ``path`` can be loaded and chatted with; reads no weights.

    Raises
    ------
    ModelBroken
        A file is missing, truncated or unreadable; the message names it.
    UnsupportedModel
        The model needs Python code of its own, which is never run.
    """
    config = read_config(path)
    check_weights(path)
    named = any((path / name).is_file() for name in TOKENIZER_FILES)
    if not named and not any(path.glob("*.tiktoken")):
        raise ModelBroken(f"{path} has no tokenizer (tokenizer.json is missing)")
    check_code(path, config, trust_model_code)
    if not has_chat_template(path, config):
        raise ModelBroken(
            f"{path} has no chat template (chat_template.jinja is missing, and "
            "tokenizer_config.json has none): it is a base model, or was saved without it"
        )


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises
    ------
    ModelBroken
        It is missing or cannot be parsed.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ModelBroken(f"{path.parent} has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise ModelBroken(f"{path} cannot be read: {error}") from error


def read_config(path: Path) -> dict[str, Any]:
    """A folder's config.json, which names a model type.

    Raises
    ------
    ModelBroken
        It is missing, cannot be parsed, or names none.
    """
    config = read_json(path / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelBroken(f"{path / 'config.json'} names no model_type")
    return config


def tokenizer_config(path: Path) -> dict[str, Any]:
    """A folder's tokenizer_config.json, empty where there is none."""
    file = path / "tokenizer_config.json"
    config = read_json(file) if file.is_file() else {}
    return config if isinstance(config, dict) else {}


def weight_files(path: Path) -> list[Path]:
    """The files that mlx-lm reads weights from, in order of name."""
    return sorted(path.glob("model*.safetensors"))


def check_weights(path: Path) -> None:
    """Check that all shards are there and whole.

    Raises
    ------
    ModelBroken
        Names the missing or truncated file.
    """
    files = weight_files(path)
    if not files:
        raise ModelBroken(f"{path} has no weights (model.safetensors is missing)")
    missing = expected_shards(path, files) - {file.name for file in files}
    if missing:
        raise ModelBroken(f"{path} lacks the shard {min(missing)}")
    for file in files:
        safetensors.read_header(file)


def expected_shards(path: Path, files: list[Path]) -> set[str]:
    """Names of the weight files that there should be, from the index or the shards' own names."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        content = read_json(index)
        if not isinstance(content, dict) or not isinstance(content.get("weight_map"), dict):
            raise ModelBroken(f"{index} has no weight_map")
        return set(content["weight_map"].values())
    expected = set()
    for file in files:
        if match := _SHARD.fullmatch(file.name):
            width, count = len(match[2]), int(match[2])
            expected |= {
                f"model-{number:0{width}}-of-{match[2]}.safetensors"
                for number in range(1, count + 1)
            }
    return expected


def check_code(path: Path, config: dict[str, Any], trusted: bool = False) -> None:
    """Refuse a model whose architecture is a Python file beside it.

    Raises
    ------
    UnsupportedModel
        Unless ``trusted``.
    """
    if config.get("model_file") is not None and not trusted:
        raise UnsupportedModel(
            f"{path} needs its own Python file {config['model_file']!r} to be run, which mlxnb "
            "does not do; convert the model to an architecture that mlx-lm has"
        )


def has_chat_template(path: Path, config: dict[str, Any]) -> bool:
    """Whether messages can be rendered for this model."""
    settings = tokenizer_config(path)
    if settings.get("chat_template") or (path / "chat_template.jinja").is_file():
        return True
    if (path / "additional_chat_templates" / "default.jinja").is_file():
        return True
    return bool(json_template(path)) or _known_template(settings, config)


def json_template(path: Path) -> str | None:
    """The template in chat_template.json, where only processors look for it."""
    file = path / "chat_template.json"
    content = read_json(file) if file.is_file() else None
    template = content.get("chat_template") if isinstance(content, dict) else None
    return template if isinstance(template, str) else None


def _known_template(settings: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether mlx-lm itself has a template, asked for by name or by the model's type."""
    from importlib.util import find_spec

    kind = settings.get("chat_template_type")
    if kind is None:
        kind = _default_template_type(config["model_type"])
    return isinstance(kind, str) and find_spec(f"mlx_lm.chat_templates.{kind}") is not None


def _default_template_type(model_type: str) -> str | None:
    from importlib import import_module

    try:
        module = import_module(f"mlx_lm.models.{model_type}")
    except ImportError:
        return None
    found = getattr(module, "TOKENIZER_DEFAULTS", {}).get("chat_template_type")
    return found if isinstance(found, str) else None
