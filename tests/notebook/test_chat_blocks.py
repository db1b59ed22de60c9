"""Markdown that grows in blocks, and what of it is sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from mlxnb.notebook.markdown import to_html
from mlxnb.notebook.widgets.chat_blocks import LONG, Blocks


def put(blocks: list[dict[str, str]], news: dict[str, Any]) -> list[dict[str, str]]:
    """Blocks after news, as the page puts them."""
    at = news["at"]
    if "more" not in news:
        return [*blocks[:at], *news["blocks"]]
    grown = {**blocks[at], "code": blocks[at]["code"] + news["more"]}
    return [*blocks[:at], grown, *news["blocks"]]


def source(blocks: list[dict[str, str]]) -> str:
    return "".join(block.get("html", block.get("code", "")) for block in blocks)


TEXT = """\
# A title

Some *text* with `code`,
and more of it.

- one
- two

  still two

- three

1. first
2. second

   ```sh
   ls

   pwd
   ```

```python
def f():

    return "**not bold**"
```
Right after.

| a | b |
|---|---|
| 1 | 2 |

> a quote
> goes on

~~~~
open ``` inside
~~~~
the *end*"""


def cut(text: str, seed: int) -> Iterator[str]:
    """A text in pieces of a few characters."""
    dice = random.Random(seed)
    while text:
        size = dice.randint(1, 7)
        yield text[:size]
        text = text[size:]


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_the_same_however_the_text_is_cut_and_whenever_it_is_shown(seed: int) -> None:
    blocks, shown, dice = Blocks(), list[dict[str, str]](), random.Random(seed)
    for piece in cut(TEXT, seed):
        blocks.feed(piece)
        if dice.random() < 0.5 and (news := blocks.news()) is not None:
            shown = put(shown, news)
    last = blocks.news(final=True)
    assert last is not None
    assert put(shown, last) == Blocks(TEXT).all()


def test_blocks_put_together_are_the_whole_text_rendered() -> None:
    blocks = Blocks(TEXT).all()
    code = [block["code"] for block in blocks if "code" in block]
    assert code == ['def f():\n\n    return "**not bold**"\n', "open ``` inside\n"]
    assert [block["lang"] for block in blocks if "code" in block] == ["python", ""]
    texts = TEXT.split("```python\n")[0], "Right after.\n\n|" + TEXT.split("Right after.\n\n|")[1]
    whole = to_html(texts[0]) + to_html(texts[1].split("~~~~")[0]) + to_html("the *end*")
    assert "".join(block.get("html", "") for block in blocks) == whole


def test_a_finished_block_is_sent_once() -> None:
    blocks, sent = Blocks(), list[str]()
    for number in range(50):
        blocks.feed(f"paragraph {number}\n\n")
        news = blocks.news()
        assert news is not None
        sent += [block["html"] for block in news["blocks"]]
    assert all(sum(f"paragraph {n}<" in html for html in sent) <= 2 for n in range(50))


def test_code_that_grows_is_sent_once() -> None:
    blocks = Blocks("```py\n")
    sizes = list[int]()
    for number in range(200):
        blocks.feed(f"x{number} = {number}\n")
        sizes.append(len(str(blocks.news())))
    assert max(sizes[1:]) < 100


@pytest.mark.parametrize("unit", ["word ", "line\n", "- item\n", "1. item\n"])
def test_no_block_grows_without_bound(unit: str) -> None:
    blocks = Blocks()
    longest = 0
    for _ in range(10 * LONG // len(unit)):
        blocks.feed(unit)
    longest = max(len(block["html"]) for block in blocks.all())
    assert longest < 6 * LONG
    text = "".join(block["html"] for block in blocks.all())
    word = unit.strip(" -1.\n")
    assert text.count(word) == 10 * LONG // len(unit)


def test_html_of_the_model_is_text() -> None:
    evil = (
        "<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n![a](https://e.example/p.png)"
    )
    html = source(Blocks(evil).all())
    assert "<script" not in html and "<img" not in html and "&lt;script&gt;" in html
