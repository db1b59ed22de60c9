"""What another thread lets the kernel's main thread do."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlxnb.notebook.main_thread import Errand

from .kernels import Kernel, kernel

BEGIN = """
import threading, time
from pathlib import Path
from mlxnb.notebook.main_thread import Errand
def begun(work):
    errand = Errand(work)
    thread = threading.Thread(target=errand.begin)
    thread.start(); thread.join()
    return errand
def for_ever():
    print("it has begun", flush=True)
    while True:
        time.sleep(0.01)
def outcome():
    try:
        return errand.result()
    except BaseException as error:
        return type(error).__name__
"""


@pytest.fixture(scope="module")
def notebook() -> Iterator[Kernel]:
    with tempfile.TemporaryDirectory(prefix="mlxnb-") as scratch, kernel(Path(scratch)) as started:
        started.ok(BEGIN)
        yield started


def value(notebook: Kernel, expression: str) -> str:
    return str(notebook.ok(expression).of("execute_result")[0].content["data"]["text/plain"])


def test_it_waits_for_the_cell(notebook: Kernel) -> None:
    notebook.strays.clear()
    cell = notebook.ok(
        "def work():\n"
        "    print('at work', flush=True)\n"
        "    return threading.current_thread() is threading.main_thread()\n"
        "errand = begun(work)\n"
        "print(errand.ended(0.2), errand.begun)"
    )
    assert cell.text() == "False False\n"
    assert value(notebook, "errand.result()") == "True"
    assert [said.content["text"] for said in notebook.strays] == ["at work\n"]


def test_what_it_raises_is_raised_where_it_is_waited_for(notebook: Kernel) -> None:
    notebook.ok("errand = begun(lambda: 1 / 0)")
    assert value(notebook, "outcome()") == "'ZeroDivisionError'"


@pytest.mark.parametrize("how", ["the stop button", "give_up"])
def test_it_is_interrupted_and_no_cell_is(notebook: Kernel, how: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    later = "time.sleep(0.3); errand.give_up()" if how == "give_up" else "pass"
    notebook.ok(
        f"def work():\n    Path({str(ready)!r}).touch()\n    for_ever()\n"
        f"def stop():\n"
        f"    while not Path({str(ready)!r}).exists(): time.sleep(0.01)\n"
        f"    {later}\n"
        "errand = begun(work)\n"
        "threading.Thread(target=stop).start()"
    )
    if how == "the stop button":
        until = time.monotonic() + 30
        while not ready.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        notebook.interrupt()
    assert value(notebook, "outcome()") == "'KeyboardInterrupt'"
    notebook.ok("errand.give_up(); time.sleep(0.2)")


def test_what_is_given_up_in_time_never_begins(notebook: Kernel) -> None:
    cell = notebook.ok("errand = begun(for_ever); errand.give_up(); print(errand.ended(0))")
    assert cell.text() == "True\n"
    assert value(notebook, "outcome(), errand.begun") == "('CancelledError', False)"


def test_without_a_kernel_it_is_done_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    errand = Errand(threading.get_ident)
    assert not errand.begun
    errand.begin()
    assert errand.ended(0) and errand.result() == threading.get_ident()
    assert signal.getsignal(signal.SIGINT) is before
