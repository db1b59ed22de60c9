"""What a kernel asks of the notebook server that started it, on the notebook port."""

from __future__ import annotations

import httpx2

from mlxnb.errors import HostRefused, HostUnreachable
from mlxnb.link.proof import check, owner, sign
from mlxnb.link.record import HostRecord

START_S = 150.0
"""Seconds that the server has to start its shared host."""
PATH = "/shared"
"""Under the URL in the server's record."""


def shared_host(server: HostRecord) -> str:
    """The id of a notebook server's shared host, which it starts if need be.

    Parameters
    ----------
    server
        The server's record, whose secret both sides prove that they know.

    Raises
    ------
    HostUnreachable
        The server does not answer, or what answers is not the server.
    HostRefused
        The host did not start; the message says why.
    """
    assert server.url is not None, "a notebook server's record has its URL"
    headers = sign(server.secret, "POST", PATH, owner())
    try:
        # its certificate may be made for another name: the proof tells who it is
        answer = httpx2.post(
            server.url.rstrip("/") + PATH,
            headers=headers,
            timeout=START_S,
            trust_env=False,
            verify=False,
        )
    except httpx2.TransportError as error:
        raise HostUnreachable("the notebook server", type(error).__name__) from error
    check(server.secret, headers, answer.headers)
    if answer.is_success:
        return str(answer.json()["id"])
    raise HostRefused(answer.status_code, _body(answer))


def _body(answer: httpx2.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None
