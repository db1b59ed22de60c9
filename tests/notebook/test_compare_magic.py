"""`%mlx_compare` and `%%mlx_compare`: sides from options, and the frame."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from mlxnb.sessions.local import LocalEngine

from .cells import Cells


@pytest.mark.parametrize("text", ["Why?", "What is {x}?", "-5 + 3 = ?", "it's $x 'odd"])
@pytest.mark.parametrize(
    "cell", ["%mlx_compare {}", "frame = %mlx_compare {}", "%%mlx_compare\n{}"]
)
def test_a_prompt_is_said_as_it_stands(
    cells: Cells, engine: LocalEngine, cell: str, text: str
) -> None:
    cells["x"] = "WRONG"
    cells.ok(cell.replace("{}", text, 1))
    session = engine.session()
    session.send(text, max_tokens=4)
    ours, its = list(engine.ledger)[-2:]
    assert list(ours.prompt) == list(its.prompt)
    assert ours.source == "magic"


def test_every_temperature_answers_with_every_seed(cells: Cells) -> None:
    found = cells.ok("%mlx_compare --temp 0 --temp 0.7 --seed 1 --seed 2 Hello").value
    assert list(found["settings"]) == [
        "temperature=0.0, seed=1",
        "temperature=0.0, seed=2",
        "temperature=0.7, seed=1",
        "temperature=0.7, seed=2",
    ]
    assert list(found["output_tokens"]) == [4] * 4
    assert list(found["same"][:2]) == [True, True]


def test_sessions_and_models_are_sides(cells: Cells, engine: LocalEngine) -> None:
    cells.ok("%mlx_chat -s a Hello")
    name = engine.session().model
    ran = cells.ok(f"%mlx_compare -o found -m {name} -s a --max-tokens 2 And now?")
    assert (ran.value, ran.stdout) == (None, "")
    assert list(cells["found"]["session"].fillna("none")) == ["none", "a"]
    assert list(cells["found"]["output_tokens"]) == [2, 2]
    assert engine.find_session("a").turns == 1


def test_var_fills_the_texts(cells: Cells, engine: LocalEngine) -> None:
    cells["topic"] = "a {river}"
    cells.ok("%mlx_compare --system {topic} --var topic Tell me of {topic}")
    text = engine.texts(engine.core.runtimes()[0]).tokenizer.decode(
        list(engine.ledger.last().prompt)
    )
    assert "system\na {river}<|im_end|>" in text
    assert "user\nTell me of a {river}<|im_end|>" in text


def test_an_interrupt_keeps_the_sides_that_have_answered(cells: Cells, engine: LocalEngine) -> None:
    before, main = len(engine.turns()), threading.main_thread().ident
    assert main is not None

    def press() -> None:
        while len(engine.turns()) - before < 2:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    seeds = " ".join(f"--seed {n}" for n in range(8))
    ran = cells.run(f"%mlx_compare -o found {seeds} --max-tokens 2000 Hello")
    thread.join()
    assert type(ran.error) is KeyboardInterrupt
    done = int(cells["found"]["answer"].notna().sum())
    assert 1 <= done < 8
    assert str(ran.error) == f"{done} of 8 have answered; they are in found"
    assert len(engine.sessions()) == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "there is no text"),
        ("-s nobody Hello", "no session 'nobody'"),
        ("-m nobody Hello", "nobody"),
        ("--temp hot Hello", "a number is needed, not 'hot'"),
        ("--temp -1 Hello", "temperature lies in [0.0, 100.0]"),
        ("--max-tokens 0 Hello", "max_tokens lies in"),
        ("-o 3x Hello", "'3x' is not a name of a variable"),
        ("--warm Hello", "no option --warm"),
    ],
)
def test_a_mistake_is_one_line(cells: Cells, engine: LocalEngine, line: str, told: str) -> None:
    before = len(engine.turns())
    assert told in cells.run(f"%mlx_compare {line}").mistake
    assert len(engine.turns()) == before
