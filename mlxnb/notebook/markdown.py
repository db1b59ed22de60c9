"""A model's Markdown as HTML that loads nothing, runs nothing and stays in its box.

The parser takes no raw HTML, and what it makes goes through an allow-list. Headings are no
heading elements, so that a notebook's table of contents and anchors do not have them; images
are links whose address can be read; math is left as text, since a typesetter's commands can load
things too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from nh3 import Cleaner

_SCHEMES = {"http", "https", "mailto"}
_TAGS = {
    *("p", "br", "hr", "div", "blockquote", "pre", "code", "em", "strong", "del", "s", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
_SIZES = {
    str(level): f"font-weight:600;font-size:{size}em"
    for level, size in enumerate((1.3, 1.2, 1.1, 1, 1, 1), start=1)
}
_ALIGNED = {f"text-align:{side}" for side in ("left", "center", "right")}


def to_html(text: str) -> str:
    """Safe HTML of a Markdown text; fences and inline code as they are, everything else rendered.

    No element but those of plain text, no id, no class, no event, and links only to absolute
    ``http``, ``https`` and ``mailto`` addresses.
    """
    return _cleaner().clean(_parser().render(text))


def steady(text: str) -> str:
    """An unfinished text with its open code span or bold run closed, so that it does not flicker.

    Only the last paragraph is looked at, and nothing inside a fence.
    """
    if sum(line.lstrip().startswith(("```", "~~~")) for line in text.split("\n")) % 2:
        return text
    last = text.rpartition("\n\n")[2]
    if last.count("`") % 2:
        return text + "`" if not text.endswith("`") else text[:-1]
    if last.count("**") % 2:
        return text.rstrip("*") if text.endswith("*") else text.rstrip() + "**"
    return text


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # a line of dashes that is just being written would make a heading of the line above it
    parser.disable(["lheading", "html_block", "html_inline"])
    parser.validateLink = _is_absolute  # type: ignore[method-assign]
    for name, rule in {"image": _image, "heading_open": _heading, "heading_close": _end}.items():
        parser.add_render_rule(name, rule)
    return parser


@functools.cache
def _cleaner() -> Cleaner:
    from nh3 import Cleaner

    return Cleaner(
        tags=_TAGS,
        attributes={"*": set(), "a": {"href"}, "ol": {"start"}},
        tag_attribute_values={
            "div": {"role": {"heading"}, "aria-level": set(_SIZES), "style": set(_SIZES.values())},
            "th": {"style": _ALIGNED},
            "td": {"style": _ALIGNED},
        },
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes=_SCHEMES,
        url_relative="deny",
        link_rel="noopener noreferrer",
    )


def _is_absolute(url: str) -> bool:
    return re.match(r"(https?://|mailto:)", url.strip(), re.IGNORECASE) is not None


def _image(renderer: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    """An image as a link that shows where it goes."""
    url = str(tokens[at].attrs["src"])
    text = renderer.renderInlineAsText(tokens[at].children or [], options, env)
    return f'<a href="{escape(url)}">{escape(f"{text} ({url})" if text else url)}</a>'


def _heading(renderer: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    level = tokens[at].tag[1:]
    return f'<div role="heading" aria-level="{level}" style="{_SIZES[level]}">'


def _end(renderer: Any, tokens: Sequence[Any], at: int, options: Any, env: Any) -> str:
    return "</div>\n"
