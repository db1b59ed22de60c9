"""What a request tells as text: with mlx-lm's own detokenizers, character by character."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, NaiveStreamingDetokenizer
from models.tiny import byte_level
from transformers import PreTrainedTokenizerFast

from mlxnb.engine.events import Piece
from mlxnb.engine.request import Request

from .running import Engine, events, wait

TEXTS = [
    "plain words",
    "naïve façade — Straße Ελλάδα",
    "漢字かな交じり文",
    "😀👩‍👩‍👧‍👦🇪🇺 e\u0301",
    "\n  blank around \n",
]
SIZE = 512


class Scripted:
    """Says the same tokens after every prompt of one token."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.layers = [None]

    def __call__(self, inputs: mx.array, cache: Any = None) -> mx.array:
        rows, length = inputs.shape
        keys = mx.zeros((rows, 1, length, 4))
        cache[0].update_and_fetch(keys, keys)
        ends = mx.array(cache[0].offset).reshape(-1).tolist() * rows
        logits = mx.zeros((rows, length, SIZE))
        for row in range(rows):
            logits[row, -1, self.script[min(ends[row], len(self.script)) - 1]] = 9.0
        return logits


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level("smollm"))


def say(engine: Engine, tokenizer: Any, text: str, **more: Any) -> Request:
    """A request whose answer is ``text``."""
    script = tokenizer.encode(text)
    engine.install("tiny", lambda: Scripted(script))
    return engine.start(engine.request([1], len(script), **more))


@pytest.fixture(params=[BPEStreamingDetokenizer, NaiveStreamingDetokenizer])
def detokenizer(request: pytest.FixtureRequest, tokenizer: Any) -> Iterator[Any]:
    yield request.param(tokenizer)


@pytest.mark.parametrize("text", TEXTS)
def test_a_character_split_over_tokens_is_never_shown_broken(
    bare: Engine, tokenizer: Any, detokenizer: Any, text: str
) -> None:
    request = say(bare, tokenizer, text, detokenizer=detokenizer)
    said = [event.text for event in events(request) if isinstance(event, Piece)]
    assert not any("\ufffd" in piece for piece in said)
    assert "".join(said) == request.machine.text == text
    assert len(said) > 1


def test_pieces_joined_are_the_text_wherever_it_is_cut(bare: Engine, tokenizer: Any) -> None:
    text = "漢字かな😀é"
    count = len(tokenizer.encode(text))
    assert count > len(text)
    wait(say(bare, tokenizer, text))
    for length in range(2, count + 1):
        more = {"detokenizer": BPEStreamingDetokenizer(tokenizer)}
        request = bare.start(bare.request([1], length, **more))
        said = [event.text for event in events(request) if isinstance(event, Piece)]
        assert "".join(said) == request.machine.text
        assert (
            request.machine.text.rstrip("\ufffd")
            == text[: len(request.machine.text.rstrip("\ufffd"))]
        )
        assert bare.ended[-1] == (request, "length")


def test_a_stop_sequence_inside_a_token_is_found(bare: Engine, tokenizer: Any) -> None:
    more = {"detokenizer": BPEStreamingDetokenizer(tokenizer)}
    request = say(bare, tokenizer, "one two three", options={"stop": ["wo th"]}, **more)
    assert wait(request).finish_reason == "stop_sequence"
    assert request.machine.text == "one t"
