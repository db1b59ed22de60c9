"""`%%mlx_map`: the prompt below, the rows of a variable, what is stored and what is shown."""

from __future__ import annotations

import signal
import threading
import time

import pandas as pd
import pytest

from mlxnb.sessions.local import LocalEngine

from .cells import Cells

TEXTS = pd.Series(["a", "b", None, "d"], index=list("wxyz"), name="text")


@pytest.fixture
def texts(cells: Cells) -> Cells:
    cells["texts"] = TEXTS
    cells["frame"] = pd.DataFrame({"text": TEXTS, "n": [1, 2, 3, 4]})
    return cells


def prompts(engine: LocalEngine, since: int) -> list[str]:
    """The user's text of each turn after the first ``since``, as its tokens say."""
    decode = engine.texts(engine.core.runtimes()[0]).tokenizer.decode
    records = list(engine.ledger)[since:]
    texts = [decode(list(record.prompt)) for record in records]
    return [t.partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0] for t in texts]


@pytest.mark.parametrize(
    ("rows", "template"),
    [
        ("texts", "Is {} good?"),
        ("texts", 'Why? {"a": $x} {{}} {}\n>>> {}\n%mlx_chat ?'),
        ("frame", ">>> {text} and {n}?\n\n  !ls {"),
        ("frame.text", "# {text}"),
    ],
)
def test_the_lines_below_are_the_prompt_as_they_stand(
    texts: Cells, engine: LocalEngine, rows: str, template: str
) -> None:
    texts["x"] = texts["a"] = "WRONG"
    before = len(engine.turns())
    ran = texts.ok(f"%%mlx_map {rows}\n{template}")
    assert isinstance(ran.value, pd.Series)
    assert list(ran.value.isna()) == [False, False, True, False]
    said = [
        template.replace("{{}}", "\0").replace("{}", v).replace("{text}", v).replace("{n}", str(n))
        for v, n in (("a", 1), ("b", 2), ("d", 4))
    ]
    assert sorted(prompts(engine, before)) == sorted(t.replace("\0", "{}") for t in said)
    assert set(engine.turns()["source"][before:]) == {"magic"}
    assert len(engine.sessions()) == 0


def test_a_stored_result_says_how_many_rows_are_answered(texts: Cells) -> None:
    ran = texts.ok("%%mlx_map -o answers texts\nSay {}")
    assert (ran.value, ran.stdout) == (None, "answers: 3 of 3 rows are answered\n")
    assert list(texts["answers"].index) == list("wxyz")


def test_a_failure_is_told_with_the_row(cells: Cells) -> None:
    cells["rows"] = pd.Series(["short", "long " * 30_000], index=["s", "l"])
    ran = cells.ok("%%mlx_map -o answers rows\n{}")
    assert ran.stdout.startswith(
        "answers: 1 of 2 rows are answered; 1 failed, the first (l) with ContextOverflow: "
    )
    assert ran.stdout.count("\n") == 1


def test_the_options_are_those_of_a_turn(texts: Cells, engine: LocalEngine) -> None:
    texts["role"] = "a {pirate}"
    options = "--system 'You are {role}.' --var role -t 2 --seed 5 --max-tokens 3"
    texts.ok(f"%%mlx_map {options} -o answers texts\nSay {{}}")
    session = engine.session(system="You are a {pirate}.", temperature=2.0, max_tokens=3)
    assert texts["answers"]["x"] == session.send("Say b", seed=6).text
    assert texts["answers"].attrs["turns"]["output_tokens"].dropna().eq(3).all()


def test_resume_asks_only_what_is_not_answered(texts: Cells, engine: LocalEngine) -> None:
    cell = "%%mlx_map -o answers --resume texts\nSay {}"
    before = len(engine.turns())
    texts.ok(cell)  # there is nothing yet to go on from
    first = texts["answers"]
    texts["texts"] = TEXTS.fillna("c")
    ran = texts.ok(cell)
    assert ran.stdout == "answers: 4 of 4 rows are answered\n"
    assert len(engine.turns()) - before == 4
    assert texts["answers"].drop("y").equals(first.drop("y"))


def test_a_schema_is_a_variable(texts: Cells) -> None:
    texts["form"] = {
        "type": "object",
        "properties": {"good": {"const": True}},
        "required": ["good"],
        "additionalProperties": False,
    }
    ran = texts.ok("%%mlx_map --schema form --max-tokens 200 texts\nIs {} good?")
    assert list(ran.value.columns) == ["good"]


def test_an_interrupt_stores_what_is_done(cells: Cells, engine: LocalEngine) -> None:
    cells["rows"] = pd.Series(range(400))
    before, main = len(engine.turns()), threading.main_thread().ident
    assert main is not None

    def press() -> None:
        while len(engine.turns()) - before < 40:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    ran = cells.run("%%mlx_map -o answers rows\nSay {}")
    thread.join()
    assert type(ran.error) is KeyboardInterrupt
    done = int(cells["answers"].notna().sum())
    assert str(ran.error) == (
        f"{done} of 400 rows are answered; they are in answers, and --resume goes on"
    )
    assert 0 < done < 400
    assert f"answers: {done} of 400 rows are answered\n" in ran.stdout
    assert len(engine.sessions()) == 0


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%%mlx_map texts\n \n", "there is no prompt"),
        ("%mlx_map texts", "there is no prompt: it stands below"),
        ("%%mlx_map\nSay {}", "ROWS is missing"),
        ("%%mlx_map nothing\nSay {}", "ROWS: 'nothing': there is no such variable"),
        ("%%mlx_map frame.m\nSay {}", "ROWS: 'frame.m': there is no column 'm'"),
        ("%%mlx_map frame\nSay {}", "no column for {} in the prompt; there are: {text}, {n}"),
        ("%%mlx_map texts\nSay it", "the prompt names no column"),
        ("%%mlx_map wrong\nSay {}", "rows is a Series or a DataFrame, not int"),
        ("%%mlx_map --resume texts\nSay {}", "--resume needs -o NAME"),
        ("%%mlx_map --resume -o wrong texts\nSay {}", "resume is what an earlier map has returned"),
        ("%%mlx_map -o 3x texts\nSay {}", "'3x' is not a name of a variable"),
        ("%%mlx_map --schema none texts\nSay {}", "--schema none: there is no such variable"),
        ("%%mlx_map --schema wrong texts\nSay {}", "schema is a pydantic model or a JSON schema"),
        ("%%mlx_map -m nobody texts\nSay {}", "nobody"),
        ("%%mlx_map -t hot texts\nSay {}", "a number is needed, not 'hot'"),
    ],
)
def test_a_mistake_is_one_line(texts: Cells, engine: LocalEngine, cell: str, told: str) -> None:
    texts["wrong"] = 3
    before = len(engine.turns())
    assert told in texts.run(cell).mistake
    assert len(engine.turns()) == before
