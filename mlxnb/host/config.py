"""What a headless host is started with: written by the notebook server's extension, or by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mlxnb.errors import InvalidOption
from mlxnb.host.context import MIB, Limits
from mlxnb.link.patience import WRITE_S
from mlxnb.link.places import store_file
from mlxnb.models.resolve import resolve
from mlxnb.models.source import ModelSource
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.limits import Limits as ServiceLimits
from mlxnb.sessions.serving.store import Store


class Config(BaseModel):
    """Each field has a value to begin with; none is a secret.

    Attributes
    ----------
    model
        Loaded at the start: ``demo``, a folder or a ``.gguf`` file, or a Hub id; empty: none.
    models_dir, allowed_models, aliases
        See `Catalog`; empty: none, all, none.
    port
        A loopback port to listen on too; 0: any.
    store, retention_s
        Whether responses are kept, and for how many seconds.
    max_waiting, max_output_tokens
        Requests that may wait for a model, and tokens that an answer may have; 0: what fits.
    idle_clear_s, idle_unload_s
        Seconds without work after which free buffers go, and models; 0: models stay.
    budget
        Bytes for KV; None: chosen from the machine's memory.
    disk
        Bytes of KV that are kept on disk, 0: none; None: see `mlxnb.engine.disk.open_disk`.
    body_limit_bytes, keep_alive_s, write_timeout_s
        See `mlxnb.host.context.Limits`.
    title
        For people.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    models_dir: str = ""
    allowed_models: list[str] = []
    aliases: dict[str, str] = {}
    port: int | None = Field(None, ge=0, le=65535)
    store: bool = True
    retention_s: float = Field(7 * 86400, ge=60, le=7776000)
    max_waiting: int = Field(16, ge=0)
    max_output_tokens: int = Field(0, ge=0)
    idle_clear_s: float = Field(30.0, ge=0)
    idle_unload_s: float = Field(0.0, ge=0)
    budget: int | None = Field(None, ge=MIB)
    disk: int | None = Field(None, ge=0)
    body_limit_bytes: int = Field(32 * MIB, ge=1024)
    keep_alive_s: float = Field(5.0, gt=0)
    write_timeout_s: float = Field(WRITE_S, gt=0)
    title: str = "shared host"

    @classmethod
    def read(cls, text: str) -> Config:
        """From JSON.

        Raises
        ------
        InvalidOption
            It is no JSON, or a field is wrong; the first one is named.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise _wrong(error) from None

    @classmethod
    def of(cls, **fields: Any) -> Config:
        """From values; raises as `read`."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise _wrong(error) from None

    def source(self) -> ModelSource | None:
        """The model to be loaded at the start; raises as `resolve` does."""
        return resolve(self.model, progress=False) if self.model else None

    def catalog(self, source: ModelSource | None) -> Catalog:
        """The models that requests may name."""
        return Catalog(
            [] if source is None else [source],
            models_dir=Path(self.models_dir).expanduser() if self.models_dir else None,
            allowed=self.allowed_models or None,
            aliases=self.aliases,
        )

    def open_store(self) -> Store | None:
        """Where responses are kept; None: nowhere."""
        return Store(store_file(), self.retention_s) if self.store else None

    @property
    def limits(self) -> Limits:
        """Of the sockets."""
        return Limits(self.body_limit_bytes, self.keep_alive_s, self.write_timeout_s)

    @property
    def service_limits(self) -> ServiceLimits:
        """Of the service."""
        return ServiceLimits(
            waiting=self.max_waiting,
            output_tokens={"*": self.max_output_tokens} if self.max_output_tokens else {},
            idle_unload_s=self.idle_unload_s or None,
        )


def _wrong(error: ValidationError) -> InvalidOption:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"])) or "the configuration"
    return InvalidOption(f"{field}: {first['msg']}")
