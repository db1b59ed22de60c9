"""The models that requests may name: what is loaded and what lies on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from mlxnb.errors import MlxnbError, ModelNotFound
from mlxnb.models.discover import sources
from mlxnb.models.folder import check_folder
from mlxnb.models.source import ModelSource

LISTED = 20
"""Names that an error lists."""


class Catalog:
    """Names to models. Nothing is downloaded, and no code of a model's folder is run.

    Parameters
    ----------
    models
        Models that have been found already, such as the one that a host was started for.
    models_dir
        A folder of models; their folders' names are theirs.
    allowed
        Names or globs of the models that may be asked for; None: all.
    aliases
        Names or globs that clients ask for, and the models that they get. First match counts.
    machine
        Whether the models in this user's caches count too.
    """

    def __init__(
        self,
        models: Iterable[ModelSource] = (),
        *,
        models_dir: Path | None = None,
        allowed: Sequence[str] | None = None,
        aliases: Mapping[str, str] | None = None,
        machine: bool = True,
    ) -> None:
        self._models = list(models)
        self._models_dir = models_dir
        self._allowed = allowed
        self._aliases = dict(aliases or {})
        self._machine = machine

    def find(self, asked: str, loaded: Sequence[str]) -> str:
        """The model that a name stands for, which is loaded or can be.

        Raises
        ------
        ModelNotFound
            There is none; lists those that there are.
        """
        named = asked if asked in loaded else self._alias(asked)
        if self._may(named) and (named in loaded or self.source(named) is not None):
            return named
        there = self.names(loaded)
        more = f" and {len(there) - LISTED} more" if len(there) > LISTED else ""
        listed = ", ".join(there[:LISTED]) + more if there else "none"
        raise ModelNotFound(f"there is no model {asked!r}; there are: {listed}", param="model")

    def names(self, loaded: Sequence[str]) -> list[str]:
        """All names that can be asked for, the loaded ones first; globs left out."""
        plain = (name for name in self._aliases if not set(name) & set("*?["))
        known = [*loaded, *(s.name for s in self._candidates() if self._usable(s)), *plain]
        return [n for n in dict.fromkeys(known) if self._may(self._alias(n))]

    def source(self, name: str) -> ModelSource | None:
        """Where a model of that name lies; None: nowhere, or it cannot be used."""
        named = (source for source in self._candidates() if source.name == name)
        return next(filter(self._usable, named), None)

    def _alias(self, asked: str) -> str:
        if asked in self._aliases:
            return self._aliases[asked]
        matching = (to for glob, to in self._aliases.items() if fnmatchcase(asked, glob))
        return next(matching, asked)

    def _may(self, name: str) -> bool:
        allowed = self._allowed
        return allowed is None or any(fnmatchcase(name, glob) for glob in allowed)

    def _candidates(self) -> Iterator[ModelSource]:
        yield from self._models
        yield from self._folders()
        if self._machine:
            yield from sources()

    def _usable(self, source: ModelSource) -> bool:
        """Whether it is whole, and needs no code of its own unless that was agreed to."""
        try:
            check_folder(source.path, source.trust_model_code)
        except MlxnbError:
            return False
        return True

    def _folders(self) -> Iterator[ModelSource]:
        try:
            folders = sorted(self._models_dir.iterdir()) if self._models_dir is not None else []
        except OSError:
            return
        yield from (ModelSource(folder.name, folder) for folder in folders if folder.is_dir())
