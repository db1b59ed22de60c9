"""What functions print and display where no cell runs."""

from __future__ import annotations

import builtins
import logging
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxnb.notebook.captured import Captured

from .kernels import Kernel, kernel


@pytest.fixture(scope="module")
def notebook() -> Iterator[Kernel]:
    with tempfile.TemporaryDirectory(prefix="mlxnb-") as scratch, kernel(Path(scratch)) as started:
        started.ok("from mlxnb.notebook.captured import Captured\nfrom IPython.display import *")
        yield started


def test_what_is_printed_is_taken_and_all_is_put_back() -> None:
    before = sys.stdout, sys.stderr, builtins.input
    with Captured() as captured:
        print("one")
        thread = threading.Thread(target=print, args=("two",), kwargs={"file": sys.stderr})
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match=r"cannot ask with input\(\)"):
            input("who? ")
    assert (captured.text, captured.images) == ("one\ntwo\n", [])
    assert before == (sys.stdout, sys.stderr, builtins.input)
    with pytest.raises(ValueError, match="no"), captured:
        raise ValueError("no")
    assert before == (sys.stdout, sys.stderr, builtins.input)


def test_what_is_written_over_is_not_shown() -> None:
    with Captured() as captured:
        print("\r".join(f"{n}/3" for n in range(4)))
        print("\x1b[31mred\x1b[0m", end="\x1b]0;title\x1b\\")
    assert captured.text == "3/3\nred"


def test_others_write_as_before_and_so_does_who_keeps_the_stream(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin, end = threading.Event(), threading.Event()

    def other() -> None:
        begin.wait()
        print("other")
        end.set()

    thread = threading.Thread(target=other)
    thread.start()
    with Captured() as captured:
        begin.set()
        end.wait()
        kept = sys.stderr
        handler = logging.StreamHandler()
        sys.stdout.close()
        print("own")
    thread.join()
    print("late", file=kept)
    handler.emit(logging.makeLogRecord({"msg": "logged"}))
    assert captured.text == "own\n"
    assert capsys.readouterr() == ("other\n", "late\nlogged\n")


def test_what_is_displayed_is_taken(notebook: Kernel) -> None:
    cell = notebook.ok(
        "with Captured() as captured:\n"
        "    display(Markdown('*gone*')); clear_output()\n"
        "    print('first')\n"
        "    display({'text/plain': 'a'}, raw=True)\n"
        "    handle = display({'text/plain': 'b'}, raw=True, display_id=True)\n"
        "    handle.update({'text/plain': 'c'}, raw=True)\n"
        "    display({'image/png': 'cG5n', 'text/plain': 'figure'}, raw=True)\n"
        "    print('pri', end=''); display({'image/png': 'Zw=='}, raw=True); print('nted')\n"
        "print([captured.text, captured.images]); display({'text/plain': 'after'}, raw=True)"
    )
    images = [f"data:image/png;base64,{content}" for content in ("cG5n", "Zw==")]
    assert cell.text() == f"['first\\na\\nc\\nprinted\\n', {images}]\n"
    assert [m.content["data"] for m in cell.displays] == [{"text/plain": "after"}]


def test_a_figure_that_was_drawn_is_taken(notebook: Kernel) -> None:
    cell = notebook.ok(
        "import matplotlib.pyplot as plt\n"
        "with Captured() as captured:\n"
        "    plt.plot([1, 2])\n"
        "print(len(captured.images), captured.images[0][:28])"
    )
    assert cell.text() == "1 data:image/png;base64,iVBORw\n" and cell.displays == []


def test_other_messages_are_handled_meanwhile(notebook: Kernel) -> None:
    """What comes for a subshell sets all streams and publishers up for itself."""
    cell = notebook.ok(
        "with Captured() as captured:\n"
        "    get_ipython().set_parent(get_ipython().parent_header)\n"
        "    print('still')\n"
        "print(captured.text)"
    )
    assert cell.text() == "still\n\n"
