"""A damaged embedding: models of all kinds of cache keep nothing that is no number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten, tree_unflatten

from mlxnb.cache.store import PrefixCache
from mlxnb.errors import BadLogits, RequestFailed
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .lives import Life
from .settled import assert_settled

KINDS = ["llama", "gemma2", "gemma3_text", "lfm2", "mamba", "falcon_h1", "recurrent_gemma"]
SYSTEM = "You answer in few words, and you never say more than you were asked for. " * 2
WORD = "zebra zebra"
OPTIONS: dict[str, Any] = {"system": SYSTEM, "max_tokens": 6, "temperature": 0.0}


class Damage:
    """Makes the embeddings of the tokens of ``WORD`` NaN, and whole again."""

    def __init__(self, engine: LocalEngine, name: str) -> None:
        self._engine, runtime = engine, engine.core.runtime(name)
        self._model = runtime.model
        parameters: Any = tree_flatten(self._model.parameters())
        self._name, self._whole = next((n, v) for n, v in parameters if "embed" in n)
        used = set(runtime.tokenizer.encode(SYSTEM + "and?", add_special_tokens=False))
        ids = runtime.tokenizer.encode(WORD, add_special_tokens=False)
        self._rows = [token for token in ids if token not in used]
        assert self._rows

    def __enter__(self) -> None:
        self._engine.core.owner.call(lambda: self._set(self._rows))

    def __exit__(self, *_: object) -> None:
        self._engine.core.owner.call(lambda: self._set([]))

    def _set(self, rows: list[int]) -> None:
        value = mx.array(self._whole)
        for row in rows:
            value[row] = float("nan")
        mx.eval(value)
        self._model.update(tree_unflatten([(self._name, value)]))


def fails(session: Session) -> None:
    with pytest.raises(RequestFailed, match="NaN or infinite") as failed:
        session.send(WORD)
    assert isinstance(failed.value.__cause__, BadLogits)


@pytest.mark.parametrize("family", KINDS)
def test_what_is_no_number_is_not_kept_and_the_next_is_right(
    engine: LocalEngine, folder_of: Callable[[str], Path], family: str
) -> None:
    name = engine.load(folder_of(family), progress=False).name
    session = engine.session(name, **OPTIONS)
    session.send("and?")
    other = session.fork()
    with Damage(engine, name):
        fails(session)
        fails(other)
        with pytest.raises(RequestFailed, match="computed NaN"):
            engine.warm(SYSTEM + WORD, name)
    assert_settled(engine)
    cold = engine.session(name, reuse=False, **OPTIONS)
    cold.send("and?")
    wanted = cold.send(WORD).tokens
    assert session.send(WORD).tokens == wanted
    assert other.send(WORD).tokens == wanted
    warm = engine.session(name, **OPTIONS)
    assert warm.send("and?").cached_tokens > 0


@pytest.mark.parametrize("family", ["llama", "llama contiguous", "gemma3_text", "lfm2", "mamba2"])
def test_what_is_no_number_goes_from_the_disk_too(
    folder_of: Callable[[str], Path], tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it came there: it is met once at most."""
    one = Life(tmp_path / "kv", folder_of(family.split()[0]), family)
    with monkeypatch.context() as patch, Damage(one.engine, one.name):
        patch.setattr(PrefixCache, "is_sound", lambda *_: True)
        one.engine.warm(SYSTEM + WORD * 10, one.name)
        one.written()
    one.close()
    two = Life(tmp_path / "kv", folder_of(family.split()[0]), family)
    session = two.engine.session(two.name, **OPTIONS | {"system": SYSTEM + WORD * 10})
    fails(session)
    two.written()
    two.close()
    three = Life(tmp_path / "kv", folder_of(family.split()[0]), family)
    session = three.engine.session(three.name, **OPTIONS | {"system": SYSTEM + WORD * 10})
    assert session.send(WORD).finish_reason in ("stop", "length")
    three.close()
