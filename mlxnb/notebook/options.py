"""The options of one magic: how its line is read, and what its help says.

Values are read as a shell would read them, quotes included; the text of a prompt is left alone.
Every mistake is a one-line ``UsageError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

from IPython.core.error import UsageError

_QUOTES = "'\""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Without a ``metavar`` it is a switch.

    Parameters
    ----------
    names
        As typed; the last is the long one, and names the value.
    convert
        Text → value; raises ValueError.
    repeat
        May be given several times; the value is a list.
    many
        Takes all words up to the next option, where no text follows.
    complete
        What completes its value: session, model or file.
    """

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    convert: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    repeat: bool = False
    many: bool = False
    complete: str | None = None

    @property
    def dest(self) -> str:
        """The name of its value."""
        return self.names[-1].lstrip("-").replace("-", "_")

    @property
    def empty(self) -> Any:
        """The value where the option is not given."""
        return [] if self.repeat else None if self.metavar else False

    @property
    def usage(self) -> str:
        """As a synopsis shows it."""
        value = f" {self.metavar}" if self.metavar else ""
        return f"[{'|'.join(self.names)}{value}]" + "…" * self.repeat

    @property
    def invocation(self) -> str:
        """As a list of options shows it."""
        return ", ".join(self.names) + (f" {self.metavar}" if self.metavar else "")

    @property
    def explained(self) -> str:
        """Its help, its choices, and whether it may be repeated."""
        extra = f" ({', '.join(self.choices)})" if self.choices else ""
        return self.help + extra + ("; may be repeated" if self.repeat else "")


@dataclass(frozen=True, slots=True)
class Argument:
    """A word that stands without an option's name; ``many``: all that come, as a list."""

    name: str
    help: str
    required: bool = True
    choices: tuple[str, ...] = ()
    complete: str | None = None
    many: bool = False

    @property
    def usage(self) -> str:
        """As a synopsis shows it."""
        name = f"{self.name}…" if self.many else self.name
        return name if self.required else f"[{name}]"


@dataclass(frozen=True, slots=True)
class Command:
    """One magic, or one verb of it.

    Parameters
    ----------
    text
        Name of the verbatim text that follows the options; empty: words are all there is.
    below
        Name of the text that stands in the lines below: it is a magic of cells alone.
    notes
        Further help, in paragraphs.
    """

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    arguments: tuple[Argument, ...] = ()
    text: str = ""
    notes: str = ""
    below: str = ""

    # --- reading a line -----------------------------------------------------------------------

    def parse(self, line: str) -> SimpleNamespace:
        """The values of a line without text; what is not given is None, [] or False."""
        found = self._nothing()
        words = list(self._read(line, found))
        if self.arguments and self.arguments[-1].many:
            place = len(self.arguments) - 1
            setattr(found, self.arguments[-1].name.lower(), words[place:])
            words = words[:place]
        if len(words) > len(self.arguments):
            self.fail(f"unexpected {words[len(self.arguments)]!r}")
        for argument, word in zip(self.arguments, words, strict=False):
            setattr(found, argument.name.lower(), self._chosen(argument.name, argument, word))
        missing = next((a.name for a in self.arguments[len(words) :] if a.required), None)
        if missing is not None:
            self.fail(f"{missing} is missing")
        return found

    def parse_text(self, line: str) -> SimpleNamespace:
        """The values of the options that a line begins with, and the ``text`` after them."""
        found = self._nothing()
        rest = line.strip()
        while _is_option(rest):
            word, after = take_word(rest)
            if word == "--":
                rest = after
                break
            rest = self._take(word, after, found, greedy=False)
        found.text = rest.strip()
        return found

    def _nothing(self) -> SimpleNamespace:
        values = {option.dest: option.empty for option in self.options}
        return SimpleNamespace(**values, **{a.name.lower(): None for a in self.arguments})

    def _read(self, line: str, found: SimpleNamespace) -> Iterator[str]:
        """Put the options of a line into ``found`` and give its other words."""
        rest, ended = line.strip(), False
        while rest:
            word, after = take_word(rest)
            if ended or not _is_option(rest):
                yield word
                rest = after
            elif word == "--":
                rest, ended = after, True
            else:
                rest = self._take(word, after, found)

    def _take(self, word: str, rest: str, found: SimpleNamespace, greedy: bool = True) -> str:
        """One option, its value in ``word`` (--long=value) or at the start of ``rest``."""
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = self._known(name)
        if not option.metavar:
            if equals:
                self.fail(f"{name} takes no value")
            setattr(found, option.dest, True)
            return rest
        if not equals:
            if not rest:
                self.fail(f"{name} needs a value ({option.metavar})")
            value, rest = take_word(rest)
        self._put(name, option, value, found)
        while greedy and option.many and rest and not _is_option(rest):
            value, rest = take_word(rest)
            self._put(name, option, value, found)
        return rest

    def _known(self, name: str) -> Option:
        option = self.option(name)
        if option is None:
            hint = "; write -- before a text that begins with a dash" if self.text else ""
            self.fail(f"no option {name}{hint}")
        return option

    def _put(self, name: str, option: Option, text: str, found: SimpleNamespace) -> None:
        value = self._converted(name, option, text)
        if option.repeat:
            getattr(found, option.dest).append(value)
        else:
            setattr(found, option.dest, value)

    def option(self, name: str) -> Option | None:
        """The option of that name, in its short or long form."""
        return next((option for option in self.options if name in option.names), None)

    def _converted(self, name: str, option: Option, value: str) -> Any:
        try:
            return option.convert(self._chosen(name, option, value))
        except ValueError as error:
            numbers: dict[object, str] = {int: "a whole number", float: "a number"}
            kind = numbers.get(option.convert)
            self.fail(f"{name}: {f'{kind} is needed, not {value!r}' if kind else error}")

    def _chosen(self, name: str, what: Option | Argument, value: str) -> str:
        if what.choices and value not in what.choices:
            self.fail(f"{name} is one of {', '.join(what.choices)}, not {value!r}")
        return value

    def fail(self, reason: str) -> NoReturn:
        """Raise a ``UsageError`` that names the magic and where its help is."""
        raise UsageError(f"%{self.name}: {reason} (help: %{self.name.split()[0]}?)")

    # --- help ---------------------------------------------------------------------------------

    @property
    def usage(self) -> str:
        """The synopsis."""
        parts = [f"{'%%' if self.below else '%'}{self.name}", *(o.usage for o in self.options)]
        parts += [a.usage for a in self.arguments] + ([self.text] if self.text else [])
        return " ".join(parts)

    @property
    def help(self) -> str:
        """What `?` shows."""
        rows = [(a.usage, a.help) for a in self.arguments]
        rows += [(o.invocation, o.explained) for o in self.options]
        width = max((len(name) for name, _ in rows), default=0)
        lines = [f"  {name:<{width}}  {text}" for name, text in rows]
        parts = [self.summary, f"    {self.usage}", "\n".join(lines), self.notes]
        return "\n\n".join(part for part in parts if part) + "\n"


def _is_option(rest: str) -> bool:
    """Whether an option comes next: ``-x``, ``--xyz`` or ``--``; ``-5`` and ``-`` are none."""
    if rest.startswith("--"):
        return len(rest) == 2 or rest[2].isspace() or rest[2].isalpha()
    return len(rest) > 1 and rest[0] == "-" and rest[1].isalpha()


def take_word(rest: str) -> tuple[str, str]:
    r"""The first word of a line and what follows it, the space between them left out.

    Quotes hold a word together and are taken off; inside double quotes ``\"`` and ``\\`` stand
    for ``"`` and ``\``. Any other backslash is itself.
    """
    word, quote, at = "", "", 0
    while at < len(rest) and (quote or not rest[at].isspace()):
        char = rest[at]
        if quote == '"' and char == "\\" and rest[at + 1 : at + 2] in ('"', "\\"):
            at += 1
            word += rest[at]
        elif char == quote:
            quote = ""
        elif not quote and char in _QUOTES:
            quote = char
        else:
            word += char
        at += 1
    if quote:
        raise UsageError(f"a {quote} is not closed in: {rest}")
    return word, rest[at:].lstrip()
