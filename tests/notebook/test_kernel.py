"""The magics in a real kernel: streaming, interrupts, and where the output goes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .kernels import Cell, Kernel, kernel

IMPORTS = "from mlxnb.notebook import views\nfrom mlxnb.notebook.plain import plain"
LONG = "x = 'a b c d ' * 11_000"  # 88,000 tokens: many prefill chunks


@pytest.fixture(scope="module")
def the_kernel(folder: Path) -> Iterator[Kernel]:
    # a socket's path must be short, which pytest's folders are not everywhere
    with tempfile.TemporaryDirectory(prefix="mlxnb-") as scratch, kernel(Path(scratch)) as started:
        started.ok(f"%load_ext mlxnb\n%mlx_load {folder} --no-progress\n{LONG}\n{IMPORTS}")
        yield started


@pytest.fixture
def notebook(the_kernel: Kernel) -> Iterator[Kernel]:
    """The kernel with a fresh current session; nothing may be published for another cell."""
    the_kernel.strays.clear()
    the_kernel.ok("%mlx_session new")
    yield the_kernel
    assert the_kernel.strays == []


def value(notebook: Kernel, expression: str) -> str:
    """An expression's text, computed in the kernel."""
    found = notebook.ok(expression).of("execute_result")
    return str(found[0].content["data"]["text/plain"])


def after(count: int, kinds: tuple[str, ...], do: Callable[[], None]) -> Callable[[Cell], None]:
    """Do something once, when a cell has published so many messages of these kinds."""
    done: list[Cell] = []

    def watch(cell: Cell) -> None:
        if not done and len(cell.of(*kinds)) >= count:
            done.append(cell)
            do()

    return watch


# --- streaming (C38, C41, C42) ----------------------------------------------------------------


def shown(cell: Cell) -> list[tuple[float, str]]:
    """When a cell showed what, as plain text."""
    displays = [(m.sent, m.content["data"]["text/plain"]) for m in cell.displays]
    return displays or [(m.sent, m.content["text"]) for m in cell.of("stream")]


@pytest.mark.parametrize("format", ["markdown", "text"])
def test_an_answer_streams_in_its_own_cell(notebook: Kernel, format: str) -> None:
    # two seconds, which a loaded machine does not stand still for
    cell = notebook.ok(f"%mlx_chat -f {format} --max-tokens 6000 -o turn talk")
    times, texts = zip(*shown(cell), strict=True)
    assert len(texts) > 3
    assert len(texts[0]) < 200  # of thousands of characters
    assert times[-1] - times[0] > 0.1 and times[-1] <= cell.of("status")[-1].sent
    assert {m.parent for m in cell.messages} == {cell.id}


@pytest.mark.parametrize("format", ["markdown", "text"])
def test_there_are_at_most_twenty_updates_a_second(notebook: Kernel, format: str) -> None:
    cell = notebook.ok(f"%mlx_chat -f {format} --max-tokens 1500 -o turn talk")
    times = [sent for sent, _ in shown(cell)]
    assert len(times) <= 20 * (times[-1] - times[0]) + 2
    assert len(times) < 500  # of 1,500 tokens


def test_the_last_update_holds_the_whole_answer(notebook: Kernel) -> None:
    cell = notebook.ok("%mlx_chat --max-tokens 300 -o turn talk")
    last = cell.displays[-1].content["data"]
    assert repr(last["text/plain"]) == value(notebook, "plain(turn.text)")
    assert "300 tokens" in last["text/html"] and "tokens/s" in last["text/html"]
    assert len(cell.of("display_data")) == 1
    names = {m.content["transient"]["display_id"] for m in cell.displays}
    assert len(names) == 1


def test_plain_text_holds_the_whole_answer_and_nothing_else(notebook: Kernel) -> None:
    cell = notebook.ok("%mlx_chat -f text --max-tokens 300 -o turn talk")
    assert repr(cell.text()) == value(notebook, "plain(turn.text) + '\\n'")
    assert {m.kind for m in cell.messages} == {"status", "execute_input", "stream"}


def test_a_long_prefill_shows_how_far_it_is(notebook: Kernel) -> None:
    notebook.ok("views.PATIENCE_S, some = 0, x[:4000]")
    cell = notebook.ok("%%mlx_chat --var some --max-tokens 1\n{some}")
    pages = [m.content["data"]["text/html"] for m in cell.displays]
    notebook.ok("views.PATIENCE_S = 0.5")
    assert any("prefill " in page for page in pages[:-1])
    assert "prefill " not in pages[-1]


def test_another_thread_that_prints_does_not_mix_in(notebook: Kernel) -> None:
    notebook.ok(
        "import threading, mlxnb\n"
        "other = mlxnb.engine().session(name='other')\n"
        "thread = threading.Thread(target=other.send, args=('x',), kwargs={'max_tokens': 400})\n"
        "thread.start()"
    )
    cell = notebook.ok("%mlx_chat --max-tokens 100 -o turn talk")
    notebook.ok("thread.join()")
    assert value(notebook, "turn.output_tokens, other.last.output_tokens") == "(100, 400)"
    assert {m.parent for m in cell.messages} == {cell.id}


# --- interrupts (C26) -------------------------------------------------------------------------


def check_interrupted(cell: Cell) -> None:
    assert cell.reply is not None
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "KeyboardInterrupt")
    assert cell.reply["traceback"] == [
        "KeyboardInterrupt: the answer was stopped; the next turn does not see it"
    ]


@pytest.mark.parametrize("format", ["markdown", "text"])
def test_one_interrupt_stops_the_decode_and_keeps_the_text(notebook: Kernel, format: str) -> None:
    kinds = ("stream",) if format == "text" else ("display_data", "update_display_data")
    source = f"%mlx_chat -f {format} --max-tokens 90000 -o turn talk"
    cell = notebook.run(source, after(3, kinds, notebook.interrupt))
    check_interrupted(cell)
    assert value(notebook, "turn.finish_reason") == "'cancelled'"
    assert value(notebook, "0 < turn.output_tokens < 90_000") == "True"
    if format == "text":
        assert repr(cell.text()) == value(notebook, "plain(turn.text) + '\\n'")
    else:
        last = cell.displays[-1].content["data"]
        assert repr(last["text/plain"]) == value(notebook, "plain(turn.text)")
        assert "interrupted" in last["text/html"]


def test_the_next_cell_works_and_the_history_is_as_it_was(notebook: Kernel) -> None:
    notebook.ok("%mlx_chat --max-tokens 3 -o first one")
    cell = notebook.run(
        "%mlx_chat --max-tokens 90000 two", after(3, ("update_display_data",), notebook.interrupt)
    )
    check_interrupted(cell)
    notebook.ok("%mlx_session show -o session")
    assert value(notebook, "[m['content'] for m in session.history][::2]") == "['one']"
    assert value(notebook, "session.last.text != ''") == "True"
    notebook.ok("%mlx_chat --max-tokens 3 -o third three")
    assert value(notebook, "third.finish_reason, session.turns") == "('length', 2)"
    assert value(notebook, "third.cached_tokens >= first.prompt_tokens + 2") == "True"


def test_an_interrupt_before_the_first_token_stops_the_prefill(notebook: Kernel) -> None:
    notebook.ok("views.PATIENCE_S = 0")
    source = "%%mlx_chat --var x -o turn --max-tokens 1 --system again\n{x}"
    cell = notebook.run(source, after(1, ("display_data",), notebook.interrupt))
    notebook.ok("views.PATIENCE_S = 0.5")
    check_interrupted(cell)
    facts = "turn.finish_reason, turn.output_tokens, turn.text"
    assert value(notebook, facts) == "('cancelled', 0, '')"
    notebook.ok("%mlx_chat --max-tokens 2 -o short short")
    assert value(notebook, "short.output_tokens") == "2"


def test_a_second_interrupt_breaks_nothing(notebook: Kernel) -> None:
    def twice() -> None:
        for _ in range(2):
            notebook.interrupt()
            time.sleep(0.01)

    cell = notebook.run("%mlx_chat --max-tokens 90000 x", after(2, ("update_display_data",), twice))
    check_interrupted(cell)
    notebook.ok("%mlx_chat --max-tokens 2 -o turn next")
    assert value(notebook, "turn.output_tokens") == "2"


def test_an_interrupt_between_cells_is_none(notebook: Kernel) -> None:
    notebook.ok("%mlx_chat --max-tokens 2 x")
    notebook.interrupt()
    time.sleep(0.2)
    notebook.ok("%mlx_chat --max-tokens 2 x")


def test_after_a_turn_an_interrupt_raises_in_other_code_again(notebook: Kernel) -> None:
    notebook.ok("%mlx_chat --max-tokens 2 x")
    # a signal that comes right before a sleep begins is seen after it: short ones
    source = "import time\nprint('now', flush=True)\nfor _ in range(600): time.sleep(0.1)"
    cell = notebook.run(source, after(1, ("stream",), notebook.interrupt))
    assert cell.reply is not None and cell.reply["ename"] == "KeyboardInterrupt"
    assert len(cell.reply["traceback"]) > 1


# --- mistakes (C39) ---------------------------------------------------------------------------


def test_a_mistake_is_one_line_and_fails_the_cell(notebook: Kernel) -> None:
    cell = notebook.run("%mlx_chat --nosuch x")
    assert cell.reply is not None
    assert (cell.reply["status"], cell.reply["ename"]) == ("error", "UsageError")
    assert cell.text("stderr").startswith("UsageError: %mlx_chat: no option --nosuch")
    assert cell.text("stderr").count("\n") == 1
    assert {m.kind for m in cell.messages} == {"status", "execute_input", "stream"}


def test_a_hard_prompt_arrives_as_it_was_typed(notebook: Kernel) -> None:
    prompt = ">>> print(f'{1/0} $HOME %s \\n')\n%time !ls \"{x}\" what?"
    notebook.ok(f"%%mlx_chat --max-tokens 1\n{prompt}")
    notebook.ok("%mlx_chat --max-tokens 1 Who's {there} $x?")
    notebook.ok("%mlx_session show -o session")
    said = "[m['content'] for m in session.history][::2]"
    assert value(notebook, f"{said} == {[prompt, 'Who' + chr(39) + 's {there} $x?']!r}") == "True"


# --- completion and help ----------------------------------------------------------------------


def test_options_and_names_complete_as_a_notebook_asks_for_them(notebook: Kernel) -> None:
    notebook.ok("%mlx_session new my-paris\n%mlx_session new my-prague\nmy_other = 1")
    assert notebook.complete("%mlx_chat --te") == (["--temp"], 10)
    assert notebook.complete("x = 1\n%mlx_session fork -s my-p") == (
        ["my-paris", "my-prague"],
        len("x = 1\n%mlx_session fork -s "),
    )
    assert notebook.complete("%%mlx_chat -f t\nhello"[:15]) == (["text"], 14)
    notebook.ok("%mlx_session rm my-paris\n%mlx_session rm my-prague")


def test_a_question_mark_shows_the_help(notebook: Kernel) -> None:
    cell = notebook.ok("%mlx_chat?")
    assert cell.reply is not None
    shown = cell.reply["payload"][0]["data"]["text/plain"]
    assert "--max-tokens N" in shown and "TEXT is verbatim" in shown
