"""Code of somebody else's that runs too long is stopped."""

from __future__ import annotations

import threading
import time

import pytest
from scripted import QWEN, tokenizer_of

from mlxnb.errors import TemplateFailed
from mlxnb.sessions import template
from mlxnb.sessions.deadline import within


def spin() -> None:
    while True:
        pass


def test_code_that_loops_is_stopped() -> None:
    with pytest.raises(TimeoutError, match=r"longer than 0\.05 s"), within(0.05):
        spin()


def test_code_that_catches_everything_ordinary_is_stopped_too() -> None:
    def stubborn() -> None:
        try:
            spin()
        except Exception:
            pytest.fail("it was caught")

    with pytest.raises(TimeoutError), within(0.05):
        stubborn()


def test_what_ends_in_time_is_left_alone_afterwards() -> None:
    with within(0.05):
        pass
    time.sleep(0.1)
    assert threading.active_count() < 100


def test_its_own_errors_come_through() -> None:
    with pytest.raises(ZeroDivisionError), within(5):
        _ = 1 / 0


def test_other_threads_are_not_touched() -> None:
    seen: list[str] = []

    def work() -> None:
        time.sleep(0.2)
        seen.append("ended")

    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(TimeoutError), within(0.05):
        spin()
    thread.join()
    assert seen == ["ended"]


def test_a_template_that_loops_is_a_failure_of_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W68"""
    monkeypatch.setattr(template, "RENDER_S", 0.2)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer = tokenizer_of(loop + QWEN)
    with pytest.raises(TemplateFailed, match="longer than"):
        template.ChatTemplate(tokenizer).render([{"role": "user", "content": "hi"}])
