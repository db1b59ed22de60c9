"""Models on the Hugging Face Hub, through huggingface_hub: its cache, token and offline switch.

What is whole in the cache is used as it is, without the network; ``pull`` looks for news.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mlxnb.errors import MlxnbError, ModelBroken, ModelNotFound, NetworkUnavailable
from mlxnb.models import safetensors
from mlxnb.models.folder import expected_shards, weight_files
from mlxnb.models.imported import sha256

PATTERNS = [
    "*.json",
    "*.jsonl",
    "*.txt",
    "*.jinja",
    "*.tiktoken",
    "tokenizer.model",
    "tiktoken.model",
    "model*.safetensors",
]
"""What mlx-lm reads, but for Python files: a model's own code is never run."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def hub_path(name: str, progress: bool = True, refresh: bool = False) -> Path:
    """The cached snapshot of a Hub repository's main branch, fetched where it is not whole.

    Parameters
    ----------
    name
        ``org/name``.
    progress
        Show progress bars.
    refresh
        Ask the Hub for a newer version, and check the hashes of what is there.

    Raises
    ------
    ModelNotFound
        The Hub has no such repository, or gives no access to it.
    NetworkUnavailable
        It has to be fetched, and the Hub cannot be reached or is switched off.
    ModelBroken
        What was fetched is damaged, twice.
    """
    if not refresh:
        cached = cached_snapshot(name)
        if cached is not None and not damaged(cached):
            return cached
    path = _fetch(name, progress)
    broken = damaged(path, hashes=True)
    if broken:
        path = _fetch(name, progress, broken)
        broken = damaged(path, hashes=True)
    if broken:
        raise ModelBroken(
            f"{name} came damaged from the Hub, twice ({', '.join(broken)}); "
            f"remove it with: mlxnb rm {name}, and fetch it again later"
        )
    return path


def cached_snapshot(name: str) -> Path | None:
    """The snapshot in the cache, None where there is none or its files are known to be missing."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        path = snapshot_download(name, allow_patterns=PATTERNS, local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    return Path(path)


def damaged(path: Path, hashes: bool = False) -> list[str]:
    """Names of the files in a snapshot that are missing, truncated or altered.

    ``hashes``: compare contents too, where the cache names a file's blob by its SHA-256; this
    reads everything.
    """
    found = [file.name for file in sorted(path.glob("*.json")) if not _parses(file)]
    if path / "model.safetensors.index.json" not in [path / name for name in found]:
        present = weight_files(path)
        found += sorted(expected_shards(path, present) - {file.name for file in present})
        found += [file.name for file in present if not _whole(file, hashes)]
    return found


def _parses(file: Path) -> bool:
    try:
        json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _whole(file: Path, hashes: bool) -> bool:
    try:
        safetensors.read_header(file)
    except ModelBroken:
        return False
    blob = file.resolve().name
    return not (hashes and _SHA256.fullmatch(blob)) or sha256(file) == blob


def _fetch(name: str, progress: bool, again: list[str] | None = None) -> Path:
    """Fetch what the cache lacks, or the files named by ``again`` whether it has them or not."""
    from huggingface_hub import snapshot_download
    from tqdm.auto import tqdm

    class Silent(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

    try:
        path = snapshot_download(
            name,
            allow_patterns=again or PATTERNS,
            force_download=again is not None,
            tqdm_class=None if progress else Silent,
        )
    except Exception as error:
        raise _explained(name, error) from error
    return Path(path)


def _explained(name: str, error: Exception) -> Exception:
    """A Hub error as a user should see it; what is not the Hub's stays as it is."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelNotFound(
            f"{name} is gated: accept its terms on its page on the Hub, then log in with: "
            "hf auth login"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(
            f"the Hub has no {name}, or it is private; check the spelling, or log in with: "
            "hf auth login"
        )
    if isinstance(error, errors.HFValidationError):
        return ModelNotFound(f"{name} is not a name that the Hub can have: {error}")
    if isinstance(error.__cause__ or error, errors.OfflineModeIsEnabled):
        return NetworkUnavailable(
            f"{name} is not in the Hub cache and HF_HUB_OFFLINE is set; unset it and start anew, "
            "or name a folder, or demo"
        )
    if isinstance(error, MlxnbError) or not _of_the_network(error):
        return error
    reason = str(error.__cause__ or error).splitlines()[0][:200]
    return NetworkUnavailable(
        f"{name} has to be fetched and the Hub could not be reached ({reason}); check the "
        "network and try again, or name a folder, or demo"
    )


def _of_the_network(error: Exception) -> bool:
    """Whether it came out of a request: huggingface_hub's errors, or its HTTP client's own."""
    modules = {kind.__module__.split(".")[0] for kind in type(error).__mro__}
    return isinstance(error, ConnectionError | TimeoutError) or bool(
        modules & {"huggingface_hub", "httpx", "httpx2", "requests"}
    )
