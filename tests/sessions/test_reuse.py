"""What a turn finds computed already, and that the answers are those of a cold run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models.tiny import byte_level, config_of, random_model, save_folder
from scripted import END, Gate, model_of

from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.session import Session

from .tokenizers import wrapped

Say = Callable[..., str]
LONG = "You answer in one word. " * 12


def cold(engine: LocalEngine, session: Session, *said: str) -> list[list[int]]:
    """The answers' tokens of the same conversation without any reuse."""
    options = session.options
    again = engine.session(options.model, options.system, reuse=False, max_tokens=12)
    turns = [again.send(text) for text in said]
    assert all(turn.cached_tokens == 0 for turn in turns)
    return [turn.tokens for turn in turns]


# --- the next turn ----------------------------------------------------------------------------


def test_the_second_turn_reuses_the_first_and_its_answer(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, "Be brief.", max_tokens=12)
    first = session.send("What is the capital of France?")
    second = session.send("And of Italy?")
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    prompt = list(engine.ledger[second.id].prompt)
    assert prompt[: first.prompt_tokens] == list(engine.ledger[first.id].prompt)
    assert prompt[first.prompt_tokens :][: len(first.tokens)][:-1] == first.tokens[:-1]
    assert [first.tokens, second.tokens] == cold(
        engine, session, "What is the capital of France?", "And of Italy?"
    )


def test_what_was_thought_is_reused_too(engine: LocalEngine, say: Say) -> None:
    name = say("<think>hm, let me see</think>one", "two")
    session = engine.session()
    first = session.send("hi")
    fed = model_of(engine, name).fed
    second = session.send("more")
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    computed = model_of(engine, name).fed - fed
    assert computed <= second.prefill_tokens + second.output_tokens


def test_an_answer_cut_by_its_length_is_continued(engine: LocalEngine, say: Say) -> None:
    name = say("one two three four five", "six")
    session = engine.session()
    first = session.send("hi", max_tokens=4)
    second = session.send("more")
    prompt = list(engine.ledger[second.id].prompt)
    assert prompt[first.prompt_tokens :][:4] == first.tokens
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    text = engine.core.runtime(name).tokenizer.decode(prompt[first.prompt_tokens :])
    assert text.startswith(first.text + END)


def test_an_answer_cut_by_a_stop_string_is_continued_as_far_as_it_shows(
    engine: LocalEngine, say: Say
) -> None:
    name = say("one two newline three", "four")
    session = engine.session()
    first = session.send("hi", stop="line")
    assert (first.text, first.finish_reason, first.stop_sequence) == (
        *("one two new", "stop_sequence"),
        "line",
    )
    second = session.send("more")
    prompt = list(engine.ledger[second.id].prompt)
    text = engine.core.runtime(name).tokenizer.decode(prompt[first.prompt_tokens :])
    assert text.startswith("one two new" + END + "\n")
    assert second.cached_tokens >= first.prompt_tokens + 2


def test_an_end_token_that_the_template_does_not_write_is_replaced(
    engine: LocalEngine, say: Say
) -> None:
    """As Llama 3's, which ends a call with <|eom_id|> and is rendered with <|eot_id|>."""
    tokenizer = byte_level("smollm")
    text = tokenizer.encode("one").ids
    other, end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id(END)
    name = say([*text, other], [*text, end], eos_token_id=[end, other])
    session = engine.session()
    first = session.send("hi")
    assert (first.finish_reason, first.tokens) == ("stop", [*text, other])
    second = session.send("more")
    prompt = list(engine.ledger[second.id].prompt)[first.prompt_tokens :]
    assert prompt[: len(text) + 1] == [*text, end]
    assert other not in prompt
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    assert name == second.model


@pytest.mark.parametrize("kind", ["spm", "spm_legacy", "llama3"])
@pytest.mark.parametrize("family", ["mistral", "llama2", "phi3", "deepseek"])
def test_other_tokenizers_and_templates_continue_too(
    engine: LocalEngine, tmp_path: Path, family: str, kind: str
) -> None:
    tokenizer = wrapped(kind, family)
    folder = save_folder(
        tmp_path / "m", config_of("llama", len(tokenizer)), tokenizer.backend_tokenizer
    )
    tokenizer.save_pretrained(folder)
    name = engine.load(folder, progress=False).name
    session = engine.session(name, max_tokens=12)
    first = session.send("hi <|end|>")
    second = session.send("more")
    assert second.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    prompt = list(engine.ledger[second.id].prompt)
    assert prompt[: first.prompt_tokens] == list(engine.ledger[first.id].prompt)
    assert [first.tokens, second.tokens] == cold(engine, session, "hi <|end|>", "more")


def test_system_texts_are_shared_between_sessions(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, LONG, max_tokens=4).send("one")
    session = engine.session(tiny, LONG, max_tokens=12)
    turn = session.send("another question")
    system = next(s for s in engine.ledger[turn.id].spans if s.role == "system")
    assert turn.cached_tokens >= system.end
    assert engine.turns().cache.tolist() == ["fresh", "prefix_hit"]
    assert [turn.tokens] == cold(engine, session, "another question")


# --- back -------------------------------------------------------------------------------------


def test_after_a_rewind_what_stays_is_not_computed_again(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, "Be brief.", max_tokens=12)
    for text in ("one", "two", "three"):
        session.send(text)
    session.rewind(2)
    assert session.turns == 1
    kept = session.tokens
    turn = session.send("other")
    assert turn.cached_tokens >= len(kept)
    assert list(engine.ledger[turn.id].prompt)[: len(kept)] == kept
    assert turn.tokens == cold(engine, session, "one", "other")[-1]


def test_a_rewound_turn_said_again_is_answered_again(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, max_tokens=12)
    session.send("one")
    second = session.send("two")
    session.rewind()
    again = session.send("two")
    assert again.tokens == second.tokens
    assert again.cached_tokens == again.prompt_tokens - 1


def test_a_rewind_to_the_beginning_keeps_the_system_text(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, LONG, max_tokens=4)
    session.send("one")
    session.send("two")
    session.rewind(2)
    assert session.history == [{"role": "system", "content": LONG}]
    turn = session.send("three")
    system = next(s for s in engine.ledger[turn.id].spans if s.role == "system")
    assert turn.cached_tokens >= system.end


def test_a_reset_keeps_the_system_text(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, LONG, max_tokens=4)
    first = session.send("one")
    session.reset()
    assert (session.turns, session.tokens) == (0, [])
    again = session.send("one")
    assert again.tokens == first.tokens
    assert again.cached_tokens == again.prompt_tokens - 1


@pytest.mark.parametrize("turns", [0, -1, 3, True, 1.0, "1", None])
def test_only_turns_that_are_there_are_taken_back(
    engine: LocalEngine, tiny: str, turns: Any
) -> None:
    session = engine.session(tiny, max_tokens=2)
    session.send("one")
    session.send("two")
    with pytest.raises(ValueError, match=r"2; .* cannot be taken back"):
        session.rewind(turns)
    assert session.turns == 2


def test_back_over_a_turn_that_was_rendered_anew(engine: LocalEngine, say: Say) -> None:
    """The template rewrites answers with an X, so that the third turn is rendered anew."""
    template = (
        "{% for m in messages %}{% set c = m.content %}"
        "{% if 'X' in messages[-1].content %}{% set c = c | upper %}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}"
        "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    name = say("one", "two", "three", template=template)
    session = engine.session(name)
    session.send("hi")
    session.send("more")
    kept = session.tokens
    third = session.send("X")
    assert session.tokens[: len(kept)] != kept
    assert third.cached_tokens < len(kept)
    session.rewind()
    assert session.tokens == kept
    again = session.send("on")
    assert again.text == "three"
    assert again.cached_tokens >= len(kept)


# --- forks ------------------------------------------------------------------------------------


def test_a_fork_shares_all_that_is_there(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, "Be brief.", max_tokens=12)
    first = session.send("one")
    fork = session.fork()
    turn = fork.send("two")
    assert turn.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    assert turn.tokens == cold(engine, session, "one", "two")[-1]
    assert session.turns == 1
    other = session.send("three")
    assert other.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    assert other.tokens == cold(engine, session, "one", "three")[-1]


def test_a_fork_of_a_fork_shares_it_too(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, name="s", max_tokens=12)
    session.send("one")
    fork = session.fork()
    second = fork.send("two")
    further = fork.fork("further")
    turn = further.send("three")
    assert turn.cached_tokens >= second.prompt_tokens + second.output_tokens - 1
    assert turn.tokens == cold(engine, session, "one", "two", "three")[-1]
    assert (fork.name, fork.forked_from, further.forked_from) == ("s-fork-1", "s", "s-fork-1")


def test_a_fork_during_a_turn_goes_on_from_before_it(engine: LocalEngine, say: Say) -> None:
    name = say("one", "two", "three")
    session = engine.session()
    first = session.send("hi")
    with Gate(model_of(engine, name), calls=2) as gate:
        reply = session.reply("more")
        gate.wait()
        fork = session.fork()
    assert fork.turns == 1
    assert reply.result().text == "two"
    turn = fork.send("other")
    assert turn.text == "two"
    assert turn.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
    assert session.turns == 2


def test_forks_that_speak_at_once_share_their_past(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, LONG, max_tokens=12)
    first = session.send("one")
    forks = [session.fork() for _ in range(3)]
    replies = [fork.reply(text) for fork, text in zip(forks, "abc", strict=True)]
    for text, reply in zip("abc", replies, strict=True):
        turn = reply.result()
        assert turn.cached_tokens >= first.prompt_tokens + first.output_tokens - 1
        assert turn.tokens == cold(engine, session, "one", text)[-1]


# --- other models, no reuse, salts ------------------------------------------------------------


def test_another_model_under_the_same_name_renders_all_anew(
    engine: LocalEngine, tmp_path: Path
) -> None:
    tokenizer = byte_level("smollm")
    config = config_of("qwen3", tokenizer.get_vocab_size())
    name = engine.load(save_folder(tmp_path / "m", config, tokenizer), progress=False).name
    session = engine.session(max_tokens=12)
    session.send("one")
    save_folder(tmp_path / "m", config, tokenizer, random_model(config, seed=1))
    engine.load(name, progress=False)
    turn = session.send("two")
    assert turn.cached_tokens == 0
    whole = engine.core.runtime(name).tokenizer.apply_chat_template(
        session.history[:-1], add_generation_prompt=True
    )
    assert list(engine.ledger[turn.id].prompt) == whole
    session.rewind()
    assert session.tokens == []
    assert session.send("two").tokens == turn.tokens


def test_without_reuse_nothing_is_looked_up_or_kept(engine: LocalEngine, say: Say) -> None:
    name = say("one", "two")
    model = model_of(engine, name)
    warm = engine.session(name, LONG)
    warm.send("hi")
    rows = len(engine.prefix_cache())
    session = engine.session(name, LONG, reuse=False)
    for text in ("hi", "more"):
        fed = model.fed
        turn = session.send(text)
        assert turn.cached_tokens == 0
        assert model.fed - fed in (
            turn.prompt_tokens + turn.output_tokens - 1,
            turn.prompt_tokens + turn.output_tokens,
        )
    assert len(engine.prefix_cache()) == rows
    assert session.tokens[: len(warm.tokens)] == warm.tokens


def test_salts_keep_sessions_apart(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, LONG, max_tokens=2).send("hi")
    salted = engine.session(tiny, LONG, cache_salt="mine", max_tokens=2)
    assert salted.send("hi").cached_tokens == 0
    again = engine.session(tiny, LONG, cache_salt="mine", max_tokens=2).send("hi")
    assert again.cached_tokens == again.prompt_tokens - 1


# --- template history -------------------------------------------------------------------------


def test_template_history_renders_all_anew(engine: LocalEngine, say: Say) -> None:
    name = say("<think>hm</think>one", "two")
    session = engine.session(name, LONG, history="template")
    session.send("hi")
    second = session.send("more")
    whole = engine.core.runtime(name).tokenizer.apply_chat_template(
        session.history[:-1], add_generation_prompt=True
    )
    assert list(engine.ledger[second.id].prompt) == whole
    assert session.tokens == []
    system = next(s for s in engine.ledger[second.id].spans if s.role == "system")
    assert second.cached_tokens >= system.end
    session.rewind()
    assert session.send("more").text == "two"
