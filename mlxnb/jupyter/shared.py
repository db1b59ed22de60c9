"""``POST {base}/shared``: a kernel of this server wants the shared host, which is started then."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated

from mlxnb.errors import ProofFailed
from mlxnb.jupyter.route import Route
from mlxnb.link.ask import PATH
from mlxnb.link.proof import PROOF, prove, verify
from mlxnb.link.record import HostRecord
from mlxnb.wire.errors import WireError


class Shared(Route):
    """Answers processes of this user that have read the server's record, and nobody else.

    They have no credential of Jupyter's: they prove that they know the record's secret, and so
    does the answer.
    """

    async def prepare(self) -> None:  # type: ignore[override]
        """Check the proof."""
        try:
            verify(self._own.secret, self.request.headers, self.request.method or "", PATH)
        except ProofFailed:
            self._refusal = WireError(401, "the request is not signed with the server's secret")

    @allow_unauthenticated  # by Jupyter; `prepare` has authenticated
    async def any(self) -> None:
        """Answer with the host's id."""
        if self._refusal is not None:
            raise self._refusal
        if self.request.method != "POST":
            raise WireError(405, "POST alone is allowed here", headers={"Allow": "POST"})
        self._answer({"id": (await self._extension.hosts.shared()).id})

    get = head = post = put = patch = delete = options = any

    @property
    def _own(self) -> HostRecord:
        record = self._extension.record
        if record is None:
            raise WireError(503, "the notebook server is still starting", code="starting")
        return record

    def _answer(self, body: Any, status: int = 200) -> None:
        self.set_header(PROOF, prove(self._own.secret, self.request.headers))
        super()._answer(body, status)
