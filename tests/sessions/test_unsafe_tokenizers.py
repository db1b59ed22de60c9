"""Tokenizers that do not give back what they were given, and such as fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models.tiny import CORPUS, byte_level, config_of, save_folder
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mlxnb.errors import DetokenizerFailed, RequestFailed
from mlxnb.sessions.local import LocalEngine

SAID = "Grüße aus Zürich,  Frau Müller!\n\n\tUnd wie geht's heute?"
SYSTEM = "Antworte KURZ und bündig. " * 8


def lowering() -> Tokenizer:
    """Capitals and accents are lost on the way in."""
    tokenizer = byte_level("smollm")
    steps = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def forgetful() -> Tokenizer:
    """Words that it does not know are one token, which is no text; space is lost on the way out."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "user", "assistant", "system"]
    trainer = trainers.WordLevelTrainer(special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def rewriting() -> Tokenizer:
    """What it decodes is not what its tokens stand for."""
    tokenizer = byte_level("smollm")
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("a", "o"), decoders.Strip(" ", 1, 1)]
    )
    return tokenizer


@pytest.fixture(params=[lowering, forgetful, rewriting])
def unsafe(request: pytest.FixtureRequest, engine: LocalEngine, tmp_path: Path) -> str:
    tokenizer = request.param()
    size = tokenizer.get_vocab_size()
    folder = save_folder(tmp_path / "model", config_of("qwen3", size), tokenizer)
    name = engine.load(folder, progress=False).name
    own = engine.core.runtime(name).tokenizer
    assert own.decode(own.encode(SAID, add_special_tokens=False)) != SAID
    return name


def test_reuse_is_exact_all_the_same(engine: LocalEngine, unsafe: str) -> None:
    options: dict[str, Any] = {"system": SYSTEM, "max_tokens": 12, "temperature": 0.0}
    warm, cold = engine.session(unsafe, **options), engine.session(unsafe, reuse=False, **options)
    for text in (SAID, "ÄÖÜ?", SAID):
        before = warm.last
        turn, again = warm.send(text), cold.send(text)
        assert turn.tokens == again.tokens and turn.text == again.text
        if before is not None:
            assert turn.cached_tokens >= before.prompt_tokens + before.output_tokens - 1
    fork = warm.fork()
    fork.rewind()
    assert fork.send("und?").tokens == _cold(engine, unsafe, options, fork)


def _cold(engine: LocalEngine, name: str, options: dict[str, Any], of: Any) -> list[int]:
    """What the last turn of a conversation says when nothing of it is reused."""
    other = engine.session(name, reuse=False, **options)
    for message in of.history[:-2]:
        if message["role"] == "user":
            other.send(message["content"])
    return other.send(of.history[-2]["content"]).tokens


def test_a_history_that_is_rendered_anew_is_right(engine: LocalEngine, unsafe: str) -> None:
    options: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0, "history": "template"}
    warm, cold = engine.session(unsafe, **options), engine.session(unsafe, reuse=False, **options)
    for text in (SAID, "und?", "so?"):
        assert warm.send(text).tokens == cold.send(text).tokens


def test_several_at_once_with_stops_and_sampling(engine: LocalEngine, unsafe: str) -> None:
    replies = [
        engine.session(unsafe, temperature=1.0, seed=n, stop=["e", "\n"]).reply(SAID, max_tokens=30)
        for n in range(3)
    ]
    for reply in replies:
        assert reply.result().finish_reason in ("stop", "stop_sequence", "length")
    assert len(engine.turns()) == 3
    engine.explain()
    engine.prefix_cache(show_text=True)


# --- tokenizers that fail ---------------------------------------------------------------------


@pytest.fixture
def fail(engine: LocalEngine, tiny: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the tokenizer's detokenizers fail at their n-th token."""
    kind = type(engine.core.runtime(tiny).tokenizer.detokenizer)
    add = kind.add_token

    def at(number: int) -> None:
        seen: dict[int, int] = {}

        def fails(self: Any, token: int) -> None:
            seen[id(self)] = seen.get(id(self), 0) + 1
            if seen[id(self)] == number:
                raise KeyError(token)
            add(self, token)

        monkeypatch.setattr(kind, "add_token", fails if number else add)

    return at


def test_a_request_whose_text_cannot_be_made_ends_alone(
    engine: LocalEngine, tiny: str, fail: Callable[[int], None]
) -> None:
    fail(3)
    long = engine.session(tiny, max_tokens=12, temperature=0.0)
    short = engine.session(tiny, max_tokens=2, temperature=0.0)
    replies = [long.reply("hi"), short.reply("hi")]
    with pytest.raises(RequestFailed, match=r"tokenizer of .* failed") as failed:
        replies[0].result()
    assert isinstance(failed.value.__cause__, DetokenizerFailed)
    assert isinstance(failed.value.__cause__.__cause__, KeyError)
    assert replies[1].result().output_tokens == 2
    assert engine.turns().error.iloc[0].startswith("DetokenizerFailed")
    assert long.history == []
    fail(0)
    assert long.send("hi").output_tokens == 12


def test_frames_are_there_though_decoding_fails(
    engine: LocalEngine, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = engine.session(tiny, max_tokens=2)
    turn = session.send("hi")
    tokenizer = engine.core.runtime(tiny).tokenizer

    def fails(*args: Any, **more: Any) -> str:
        raise KeyError(0)

    monkeypatch.setattr(tokenizer._tokenizer, "decode", fails)
    assert engine.prefix_cache(show_text=True).preview.str.startswith("[").all()
    assert session.send("again").output_tokens == 2
    assert len(engine.explain(turn).frame) > 0
