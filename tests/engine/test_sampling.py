"""How tokens are chosen: options, their order and ranges, seeds, penalties."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxnb.engine.sampling import Sampler, Sampling, make_processors
from mlxnb.errors import InvalidOption

from .running import VOCAB, Engine, prompt_of

WARM = {"temperature": 1.0, "seed": 7}


# --- ranges -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 101),
        ("temperature", "0.7"),
        ("temperature", True),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 1.1),
        ("top_p", -0.5),
        ("top_k", -1),
        ("top_k", 2.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("presence_penalty", 1000),
        ("frequency_penalty", None.__class__),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 10**400),
        ("seed", 1.0),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("n", 0),
        ("n", 1000),
        ("stop", 5),
        ("stop", ["a", 5]),
        ("logit_bias", [1, 2]),
        ("logit_bias", {"a": 1.0}),
        ("logit_bias", {1: "b"}),
        ("logit_bias", {1: float("nan")}),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=name):
        Sampling(**{name: value})


def test_an_unknown_option_lists_those_there_are() -> None:
    with pytest.raises(InvalidOption, match=r"'temprature'.*'temperature'"):
        Sampling.of({"temprature": 1})


def test_numpy_s_numbers_are_numbers() -> None:
    sampling = Sampling(
        temperature=np.float32(0.5), seed=np.int64(3), logit_bias={np.int32(4): np.float64(1.5)}
    )
    assert (sampling.temperature, sampling.seed, sampling.logit_bias) == (0.5, 3, {4: 1.5})
    assert type(sampling.temperature) is float and type(sampling.seed) is int


@pytest.mark.parametrize(
    ("stop", "kept"), [("a", ("a",)), (["a", "b"], ("a", "b")), ((), ()), (None, None)]
)
def test_stop_is_a_string_or_several(stop: Any, kept: Any) -> None:
    assert Sampling(stop=stop).stop == kept


# --- order ------------------------------------------------------------------------------------


def test_the_request_comes_before_the_session_and_that_before_the_model() -> None:
    request = Sampling(temperature=0.1)
    session = Sampling(temperature=0.2, top_p=0.2)
    model = Sampling(temperature=0.3, top_p=0.3, top_k=3)
    settled = request.over(session).over(model).settled()
    assert (settled.temperature, settled.top_p, settled.top_k) == (0.1, 0.2, 3)


def test_what_nobody_says_is_greedy() -> None:
    settled = Sampling().settled()
    assert (settled.temperature, settled.n, settled.stop) == (0.0, 1, ())
    assert settled.max_tokens is not None and settled.max_tokens > 0


def test_zero_is_something_that_was_said() -> None:
    assert Sampling(temperature=0).over(Sampling(temperature=0.9)).settled().temperature == 0
    assert Sampling(stop=()).over(Sampling(stop="x")).stop == ()


def test_a_seed_is_drawn_where_none_was_given() -> None:
    seeds = {Sampling(temperature=1.0).settled().seed for _ in range(5)}
    assert len(seeds) == 5 and None not in seeds


# --- the sampler ------------------------------------------------------------------------------


def drawn(sampling: Sampling, logits: list[float], count: int = 200) -> list[int]:
    sampler = Sampler(sampling, len(logits))
    array = mx.array([logits])
    logprobs = array - mx.logsumexp(array, axis=-1, keepdims=True)
    tokens = [int(sampler(logprobs).item()) for _ in range(count)]
    assert sampler.fault is None and sampler.position == count
    return tokens


LOGITS = [1.0, 3.0, 2.0, 0.0, 2.5]


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.0}, {}, {"temperature": 1e-30}, {"temperature": 1.0, "top_p": 0.0}],
)
def test_greedy_takes_the_likeliest(options: dict[str, Any]) -> None:
    assert set(drawn(Sampling(seed=1, **options), LOGITS, 20)) == {1}


def test_a_temperature_spreads() -> None:
    assert set(drawn(Sampling(temperature=2.0, seed=1), LOGITS)) == {0, 1, 2, 3, 4}


def test_frequencies_are_the_distribution_s() -> None:
    tokens = drawn(Sampling(temperature=1.0, seed=3), LOGITS, 4000)
    wanted = np.exp(LOGITS) / np.exp(LOGITS).sum()
    assert np.abs(np.bincount(tokens, minlength=5) / 4000 - wanted).max() < 0.03


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 4}),
        ({"top_k": 4}, {0, 1, 2, 4}),
        ({"top_p": 0.3}, {1}),
        ({"top_p": 0.7}, {1, 4}),
        ({"top_p": 1e-6}, {1}),
        ({"min_p": 0.5}, {1, 4}),
        ({"min_p": 1.0}, {1}),
        ({"top_k": 3, "min_p": 0.5}, {1, 4}),
    ],
)
def test_filters_keep_what_they_should(options: dict[str, Any], kept: set[int]) -> None:
    assert set(drawn(Sampling(temperature=3.0, seed=1, **options), LOGITS)) == kept


@pytest.mark.parametrize("options", [{"top_k": 0}, {"top_k": 5}, {"top_k": 10**6}, {"top_p": 1.0}])
def test_filters_that_keep_everything_change_nothing(options: dict[str, Any]) -> None:
    plain = drawn(Sampling(temperature=2.0, seed=1), LOGITS)
    assert drawn(Sampling(temperature=2.0, seed=1, **options), LOGITS) == plain


def test_a_seed_repeats_and_another_differs() -> None:
    one, again, two = (drawn(Sampling(temperature=2.0, seed=s), LOGITS) for s in (1, 1, 2))
    assert one == again != two


def test_all_64_bits_of_a_seed_count() -> None:
    seeds = [0, 1, 2**32, 2**32 + 1, 2**63]
    assert len({tuple(drawn(Sampling(temperature=2.0, seed=s), LOGITS)) for s in seeds}) == 5


def test_a_position_can_be_drawn_again() -> None:
    sampler = Sampler(Sampling(temperature=2.0, seed=1), 5)
    logprobs = mx.array([LOGITS])
    tokens = [int(sampler(logprobs).item()) for _ in range(10)]
    sampler.position = 4
    assert [int(sampler(logprobs).item()) for _ in range(6)] == tokens[4:]


@settings(max_examples=30)
@given(st.lists(st.floats(-20, 20, width=32), min_size=2, max_size=30), st.integers(0, 2**64 - 1))
def test_any_logits_give_a_token(logits: list[float], seed: int) -> None:
    options = Sampling(temperature=0.5, top_p=0.9, min_p=0.1, top_k=5, seed=seed)
    assert all(0 <= token < len(logits) for token in drawn(options, logits, 3))


# --- penalties and bias -----------------------------------------------------------------------


def processed(sampling: Sampling, tokens: list[int], logits: list[float]) -> list[float]:
    array = mx.array([logits])
    for processor in make_processors(sampling, len(tokens)):
        array = processor(mx.array(tokens), array)
        assert processor.fault is None
    values: list[list[float]] = array.tolist()
    return values[0]


def test_nothing_asked_for_is_no_processor() -> None:
    none = Sampling(repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    assert make_processors(none, 10) == make_processors(Sampling(logit_bias={}), 10) == []


def test_penalties_are_those_of_their_names() -> None:
    tokens, logits = [1, 1, 2], [1.0, 2.0, -2.0]
    assert processed(Sampling(repetition_penalty=2.0), tokens, logits) == [1.0, 1.0, -4.0]
    assert processed(Sampling(presence_penalty=0.5), tokens, logits) == [1.0, 1.5, -2.5]
    assert processed(Sampling(frequency_penalty=0.5), tokens, logits) == [1.0, 1.0, -2.5]
    assert processed(Sampling(logit_bias={0: 3.0}), tokens, logits) == [4.0, 2.0, -2.0]


def test_a_bias_can_force_and_forbid(engine: Engine) -> None:
    assert engine.answer(prompt_of(20), 4, options={"logit_bias": {5: 1000.0}}) == [5, 5, 5, 5]
    plain = engine.answer(prompt_of(20), 1)
    other = engine.answer(prompt_of(20), 1, options={"logit_bias": {plain[0]: -1000.0}})
    assert other != plain


def test_penalties_see_the_whole_prompt_its_cached_part_included(engine: Engine) -> None:
    """A penalty so strong that no token of the prompt can come again."""
    prompt = prompt_of(100)
    options = {"presence_penalty": 100.0}
    cold = engine.answer(prompt, 20, options=options, reuse=False)
    assert not set(cold) & set(prompt) and len(set(cold)) == 20
    engine.run(engine.request(prompt[:90], 1))
    warm = engine.request(prompt, 20, options=options)
    engine.run(warm)
    assert warm.cached == 90
    assert warm.generated == cold


def test_penalties_are_the_same_in_a_batch(engine: Engine) -> None:
    options = [
        {"repetition_penalty": 1.5},
        {"presence_penalty": 3.0},
        {"frequency_penalty": 2.0, **WARM},
        {"logit_bias": {9: 4.0}},
        {},
    ]
    prompts = [prompt_of(20 + 3 * n, seed=n) for n in range(5)]
    wanted = [
        engine.answer(p, 12, options=o, reuse=False) for p, o in zip(prompts, options, strict=True)
    ]
    requests = [engine.request(p, 12, options=o) for p, o in zip(prompts, options, strict=True)]
    engine.run(*requests)
    assert [r.generated for r in requests] == wanted


# --- seeds in an engine -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"top_p": 0.8}, {"top_k": 20, "min_p": 0.05}])
def test_a_seed_gives_the_same_alone_and_among_seven_others(
    engine: Engine, options: dict[str, Any]
) -> None:
    mine = engine.answer(prompt_of(30), 12, options={**WARM, **options})
    assert mine != engine.answer(prompt_of(30), 12)
    others = [
        engine.request(prompt_of(20 + 3 * n, seed=n), 40, options={"temperature": 1.5, "seed": n})
        for n in range(7)
    ]
    among = engine.request(prompt_of(30), 12, options={**WARM, **options}, reuse=False)
    engine.run(*others, among)
    assert among.generated == mine
    assert max(engine.models["tiny"].widths) == 8


def test_an_unseeded_answer_can_be_repeated_from_its_record(engine: Engine) -> None:
    first = engine.request(prompt_of(30), 12, options={"temperature": 1.5})
    engine.run(first)
    options = {"temperature": 1.5, "seed": first.sampling.seed}
    assert engine.answer(prompt_of(30), 12, options=options) == first.generated


def test_greedy_and_drawn_rows_share_a_batch(engine: Engine) -> None:
    greedy = engine.request(prompt_of(20), 10)
    warm = engine.request(prompt_of(22, seed=2), 10, options=WARM)
    wanted = engine.answer(prompt_of(22, seed=2), 10, options=WARM, reuse=False)
    engine.run(greedy, warm)
    assert greedy.generated == engine.alone(prompt_of(20), 10)
    assert warm.generated == wanted
    assert all(0 <= token < VOCAB for token in warm.generated)


# --- where an answer ends ---------------------------------------------------------------------


def test_a_stop_sequence_ends_the_answer_and_is_not_shown(engine: Engine) -> None:
    text = "".join(map(chr, engine.alone(prompt_of(20), 10)))
    request = engine.request(prompt_of(20), 10, options={"stop": [text[4:6]]}, owner="a")
    engine.run(request)
    assert engine.ended == [(request, "stop_sequence")]
    assert (request.machine.text, request.machine.stop_sequence) == (text[:4], text[4:6])
    assert len(request.generated) == 6


def test_a_stop_sequence_at_the_last_token_is_named(engine: Engine) -> None:
    text = "".join(map(chr, engine.alone(prompt_of(20), 6)))
    request = engine.request(prompt_of(20), 6, options={"stop": [text[4:6]]})
    engine.run(request)
    assert engine.ended == [(request, "stop_sequence")]


def test_a_shorter_stop_counts_when_a_longer_one_was_hoped_for(engine: Engine) -> None:
    text = "".join(map(chr, engine.alone(prompt_of(20), 6)))
    request = engine.request(prompt_of(20), 6, options={"stop": [text[4:6], text[4:6] + "???"]})
    engine.run(request)
    assert engine.ended == [(request, "stop_sequence")]
    assert request.machine.text == text[:4]


def test_what_could_have_become_a_stop_sequence_is_shown_in_the_end(engine: Engine) -> None:
    text = "".join(map(chr, engine.alone(prompt_of(20), 6)))
    request = engine.request(prompt_of(20), 6, options={"stop": [text[4:6] + "???"]})
    engine.run(request)
    assert engine.ended == [(request, "length")]
    assert request.machine.text == text


def test_reasoning_tokens_are_counted(engine: Engine) -> None:
    text = "\n"
    prompts = (prompt_of(20, seed=n) for n in range(50))
    while len(set(text)) < 6 or any(letter.isspace() for letter in text):
        prompt = next(prompts)
        text = "".join(map(chr, engine.alone(prompt, 6)))
    request = engine.request(prompt, 6, machine={"think": (text[0], text[4])})
    engine.run(request)
    assert (request.machine.reasoning, request.machine.text) == (text[1:4], text[5])
    assert request.reasoning_tokens == 4  # the end tag too, but not the start tag
