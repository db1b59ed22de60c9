"""The server of a kernel's own engine: it answers while a cell runs."""

from __future__ import annotations

from mlxnb.host.server import Server
from mlxnb.link.places import store_file
from mlxnb.link.record import HostRecord, aliases
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.service import Service
from mlxnb.sessions.serving.store import Store


class KernelHost:
    """Publishes an engine as a host.

    Attributes
    ----------
    server
        Its sockets.
    """

    def __init__(self, engine: LocalEngine, record: HostRecord, port: int | None) -> None:
        self._service = Service(
            engine, catalog=Catalog(aliases=aliases()), store=Store(store_file()), host=record.id
        )
        self.server = Server(self._service, record, port=port)

    @classmethod
    def start(
        cls, engine: LocalEngine, port: int | None, title: str, kernel: str | None
    ) -> KernelHost:
        """Begin to serve an engine.

        Parameters
        ----------
        port
            A loopback port to listen on too; 0: any; None: none.
        title
            For people.
        kernel
            Jupyter's id of this kernel.

        Raises
        ------
        InvalidOption
            The port is taken.
        NotPrivate, StateUnwritable
            The directories of sockets and records cannot be used.
        """
        made = cls(engine, HostRecord.here("kernel", title=title, kernel_id=kernel), port)
        try:
            made.server.start()
        except BaseException:
            made._service.close()
            raise
        return made

    @property
    def record(self) -> HostRecord:
        """As it is published."""
        return self.server.record

    @property
    def serving(self) -> bool:
        """Whether it takes requests."""
        return self.server.serving

    def stop(self) -> None:
        """Let running answers end, and take no more."""
        self.server.stop()
        self._service.close()
