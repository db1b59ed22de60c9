"""What a headless host is started with: written by the notebook server's extension, or by hand."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlxnb.errors import InvalidOption
from mlxnb.host.context import MIB, Limits
from mlxnb.link.places import store_file
from mlxnb.link.process import Process
from mlxnb.models.resolve import resolve
from mlxnb.models.source import ModelSource
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.limits import Limits as ServiceLimits
from mlxnb.sessions.serving.store import Store


class Config(BaseModel):
    """All of it has a value to begin with. No secret is in it.

    Attributes
    ----------
    model
        Loaded at the start: ``demo``, a folder or a ``.gguf`` file, or a Hub id.
    models_dir, allowed, aliases
        See `Catalog`.
    port
        A loopback port to listen on too; 0: any.
    store, retention_s
        Whether responses are kept, and for how many seconds.
    waiting, output_tokens, idle_unload_s, warm, warm_bytes, warm_s
        See `mlxnb.sessions.serving.limits.Limits`.
    budget
        Bytes for KV; None: chosen from the machine's memory.
    body_bytes, keep_alive_s
        See `mlxnb.host.context.Limits`.
    title
        For people.
    parent
        The process without which this host is to end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    models_dir: Path | None = None
    allowed: list[str] | None = None
    aliases: dict[str, str] = {}
    port: int | None = Field(None, ge=0, le=65535)
    store: bool = True
    retention_s: int = Field(7 * 86400, ge=60, le=7776000)
    waiting: int = Field(16, ge=0)
    output_tokens: dict[str, int] = {}
    idle_unload_s: float | None = Field(None, gt=0)
    warm: int = Field(256, ge=0)
    warm_bytes: int = Field(64 * MIB, ge=0)
    warm_s: float = Field(3600.0, gt=0)
    budget: int | None = Field(None, ge=MIB)
    body_bytes: int = Field(32 * MIB, ge=1024)
    keep_alive_s: float = Field(5.0, gt=0)
    title: str = "shared host"
    parent: Process | None = None

    @classmethod
    def read(cls, text: str | bytes) -> Config:
        """From JSON.

        Raises
        ------
        InvalidOption
            It is no JSON, or a field is wrong; the first one is named.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or "the configuration"
            raise InvalidOption(f"{field}: {first['msg']}") from None

    @classmethod
    def from_line(cls, stream: IO[str]) -> Config:
        """From the first line of a stream, whose end then tells that its writer is gone."""
        return cls.read(stream.readline())

    def source(self) -> ModelSource | None:
        """The model to be loaded at the start; `ModelNotFound` if there is none of that name."""
        return None if self.model is None else resolve(self.model, progress=False)

    def catalog(self, source: ModelSource | None) -> Catalog:
        """The models that requests may name."""
        models = [] if source is None else [source]
        return Catalog(
            models, models_dir=self.models_dir, allowed=self.allowed, aliases=self.aliases
        )

    def open_store(self) -> Store | None:
        """Where responses are kept; None: nowhere."""
        return Store(store_file(), self.retention_s) if self.store else None

    @property
    def limits(self) -> Limits:
        """Of the sockets."""
        return Limits(body_bytes=self.body_bytes, keep_alive_s=self.keep_alive_s)

    @property
    def service_limits(self) -> ServiceLimits:
        """Of the service."""
        return ServiceLimits(
            waiting=self.waiting,
            output_tokens=self.output_tokens,
            idle_unload_s=self.idle_unload_s,
            warm=self.warm,
            warm_bytes=self.warm_bytes,
            warm_s=self.warm_s,
        )
