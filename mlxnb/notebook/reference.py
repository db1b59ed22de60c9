"""The page docs/magics.md, made from what the magics take.

``python -m mlxnb.notebook.reference > docs/magics.md`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlxnb.notebook.commands import COMMANDS, SESSION_HELP, VERBS
from mlxnb.notebook.magics import MlxMagics
from mlxnb.notebook.options import Command

_HEAD = """\
# Magics

`%load_ext mlxnb` brings them. This page is printed by `python -m mlxnb.notebook.reference`; in a
notebook `%mlx_chat?` shows the same for one magic, and options, sessions and models complete with
Tab.

- **Prompts are verbatim.** Nothing in a prompt is expanded: no `{braces}`, no `$x`, no `%`, `?`,
  `!`, no quotes and no backslashes. `--var NAME` is the only interpolation. (As in all line magics
  of IPython, a line that ends in a backslash goes on in the next one.) `%mlx_session` reads its
  line in the same way; the other magics expand `{x}` and `$x` as IPython's own do.
- **Answers stream** from their first token, at most 20 updates a second. In a notebook an answer
  is Markdown in a box of its own: raw HTML is shown as text, images are links that show their
  address and are never loaded, headings do not join the notebook's, math is left as it is written.
  `-f text` prints the plain answer and nothing that differs from run to run, for terminals and for
  tests such as nbval's; control characters are replaced there, so that no escape sequence reaches
  a terminal.
- **One interrupt stops a turn** within a step, be it in prefill or in decode. What was there is
  shown and kept (`-o`), the session's history is as it was before the turn, and the cell ends with
  KeyboardInterrupt.
- **A mistake is one line**, a UsageError without a traceback; it fails the cell.
- **`-o NAME`** stores a magic's result in a variable. A frame that is stored is not shown.
"""
_CONFIG = """\
## Defaults

`%config MlxMagics` shows them, `%config MlxMagics.max_tokens = 200` sets one, and
`c.MlxMagics.max_tokens = 200` in `ipython_config.py` sets it for good.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_sections(), _CONFIG, *_defaults()])


def _sections() -> Iterator[str]:
    for command in COMMANDS.values():
        yield from _section(command, "##")
        if command is SESSION_HELP:
            for verb in VERBS.values():
                yield from _section(verb, "###")


def _section(command: Command, level: str) -> Iterator[str]:
    yield f"{level} `%{command.name}`\n"
    yield f"{command.summary}\n"
    if command is SESSION_HELP:
        yield "Without a verb it shows the current session. `-o` stores the Session.\n"
        return
    yield f"```\n{_synopsis(command)}\n```\n"
    rows = [(argument.name, argument.help) for argument in command.arguments]
    rows += [(option.invocation, option.explained) for option in command.options]
    if rows:
        yield from _table(("", ""), rows)
    if command.notes:
        yield f"{command.notes}\n"


def _synopsis(command: Command) -> str:
    """The forms of a magic, its options left to the table."""
    line = f"%{command.name} [OPTIONS]" if command.options else f"%{command.name}"
    forms = [" ".join([line, *(a.usage for a in command.arguments)])]
    if command.text:
        forms = [f"{line} {command.text}", "", f"%{line}", command.text]
    if command.below:
        forms = [f"%{forms[0]}", command.below]
    return "\n".join(forms)


def _defaults() -> Iterator[str]:
    traits = MlxMagics.class_own_traits(config=True)
    rows = [(name, trait.default(), trait.help) for name, trait in sorted(traits.items())]
    yield from _table(
        ("name", "default", ""), [(name, f"`{default!r}`", text) for name, default, text in rows]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table whose first column is code."""
    yield f"| {' | '.join(head)} |\n|{' --- |' * len(head)}"
    for first, *rest in rows:
        cells = [f"`{first}`", *(_escaped(text) for text in rest)]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
