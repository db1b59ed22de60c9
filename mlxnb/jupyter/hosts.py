"""The hosts that this notebook server can pass requests to, and connections to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mlxnb import __version__
from mlxnb.jupyter.choice import Wish, choose, resolve
from mlxnb.jupyter.supervisor import Supervisor
from mlxnb.link.async_client import AsyncClient
from mlxnb.link.record import HostRecord, records
from mlxnb.wire.errors import WireError


class Hosts:
    """Live hosts of this user, the headless one of this server among them.

    Parameters
    ----------
    supervisor
        Of the headless host; None: this server starts none.
    aliases
        Globs of names that clients ask for, and the models that they stand for.
    """

    def __init__(self, supervisor: Supervisor | None, aliases: Mapping[str, str]) -> None:
        self._supervisor, self._aliases = supervisor, aliases
        self._clients: dict[str, AsyncClient] = {}
        self._closing: set[asyncio.Future[None]] = set()

    def live(self) -> list[HostRecord]:
        """Hosts that run, newest first, with our version or another."""
        return [record for record in records() if record.kind != "notebook"]

    async def choose(self, wish: Wish, without: frozenset[str]) -> HostRecord:
        """The host for a request, started if need be.

        Parameters
        ----------
        without
            The uuids of hosts that were just seen not to answer.

        Raises
        ------
        WireError
            503: there is none, or its version is another one.
        """
        hosts = [record for record in self.live() if record.uuid not in without]
        ours = [record for record in hosts if record.version == __version__]
        model = None if wish.model is None else resolve(wish.model, self._aliases)
        found = choose(wish, ours, model) or await self._headless(wish, hosts, model)
        if found.version != __version__:
            raise _other_version(found)
        return found

    async def shared(self) -> HostRecord:
        """The headless host of this server, started if need be.

        Raises
        ------
        WireError
            503: it does not start, or this server starts none.
        """
        if self._supervisor is None:
            raise WireError(503, "this server starts no host: c.MlxNb.start_host is off")
        found = await self._supervisor.ensure()
        if found.version != __version__:
            raise _other_version(found)
        return found

    def having(self, model: str) -> Wish:
        """A wish for a model if a host has it; else for any host, to say what it knows of it."""
        real = resolve(model, self._aliases)
        return Wish(model) if any(real in record.models for record in self.live()) else Wish()

    async def named(self, host_id: str) -> HostRecord:
        """The live host with that id. Raises `WireError` with status 404 if there is none."""
        found = next((record for record in self.live() if record.id == host_id), None)
        if found is None:
            there = ", ".join(record.id for record in self.live()) or "none"
            raise WireError(404, f"no host has the id {host_id!r}; there are: {there}")
        return found

    def client(self, record: HostRecord) -> AsyncClient:
        """Connections to a host; those to hosts that are gone are closed."""
        if record.uuid not in self._clients:
            self._forget_dead()
            self._clients[record.uuid] = AsyncClient(record)
        return self._clients[record.uuid]

    async def close(self) -> None:
        """Close all connections and end the headless host."""
        if self._supervisor is not None:
            await self._supervisor.stop()
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(client.close() for client in clients.values()))

    async def _headless(self, wish: Wish, hosts: list[HostRecord], model: str | None) -> HostRecord:
        """The host for a model that no host of our version has."""
        other = choose(wish, hosts, model)
        if other is not None:
            return other
        if self._supervisor is not None:
            return await self._supervisor.ensure()
        if hosts:  # it says what it has
            return hosts[0]
        raise WireError(
            503,
            "no host runs, and c.MlxNb.start_host is off; "
            "run %mlx_load and %mlx_serve in a notebook",
            code="no_host",
        )

    def _forget_dead(self) -> None:
        live = {record.uuid for record in self.live()}
        for uuid in set(self._clients) - live:
            closing = asyncio.ensure_future(self._clients.pop(uuid).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _other_version(record: HostRecord) -> WireError:
    return WireError(
        503,
        f"the notebook server has mlxnb {__version__} and the host ({record.kind} "
        f"{record.title or record.process.pid}) mlxnb {record.version}; install the same version "
        "for both and restart the older one",
        code="version_mismatch",
    )
