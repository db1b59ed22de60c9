"""W62, W63: requests to a host over its socket, with a real process at the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from link.fake_host import Fake, fake_host
from mlxnb.errors import HostGone, HostRefused, HostUnreachable, NotPrivate, ProofFailed
from mlxnb.link.async_client import AsyncClient
from mlxnb.link.client import Client
from mlxnb.link.proof import Identity, owner

EVENTS = [["a", {"n": 1}], ["b", {"n": 2}]]


@pytest.fixture
def host() -> Iterator[Fake]:
    with fake_host(models="demo") as fake:
        yield fake


@pytest.fixture
def client(host: Fake) -> Iterator[Client]:
    made = Client(host.record)
    yield made
    made.close()


def test_a_call_speaks_for_this_processs_user(client: Client) -> None:
    saw = client.call("POST", "/mlxnb/api/load", {"model": "demo"})
    assert saw["identity"] == {"name": owner().name, "kind": "jupyter"}
    assert saw["body"] == '{"model": "demo"}' and saw["method"] == "POST"


def test_a_request_may_speak_for_another(client: Client) -> None:
    alice = Identity("älice", "key")
    with client.stream("GET", "/mlxnb/x?q=a%20b", identity=alice) as answer:
        answer.read()
        saw = answer.json()
    assert saw["identity"] == {"name": "älice", "kind": "key"}
    assert saw["uri"] == "/mlxnb/x?q=a%20b"


def test_an_error_is_told_with_its_status_and_message(client: Client) -> None:
    fake = {"status": 404, "body": {"error": {"message": "no such model"}}}
    with pytest.raises(HostRefused, match="no such model") as told:
        client.call("POST", "/mlxnb/x", {"fake": fake})
    assert told.value.status == 404 and told.value.body == fake["body"]


def test_w63_what_does_not_know_the_secret_is_not_heard(host: Fake) -> None:
    client = Client(replace(host.record, secret="other"))
    with pytest.raises(ProofFailed):
        client.call("GET", "/mlxnb/x")
    client.close()


# httpcore2 leaves the socket that could not connect to the garbage collector
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)
def test_a_host_that_is_gone_cannot_be_reached(client: Client, host: Fake) -> None:
    client.call("GET", "/mlxnb/x")
    host.kill()
    with pytest.raises(HostUnreachable, match="%mlx_load"):
        client.call("GET", "/mlxnb/x")


def test_a_host_that_dies_while_it_answers_is_gone(client: Client) -> None:
    with pytest.raises(HostGone) as told:
        client.call("POST", "/mlxnb/x", {"fake": {"events": EVENTS, "die": "then"}})
    assert not isinstance(told.value, HostUnreachable)


def test_w63_a_sockets_directory_that_others_may_enter_is_refused(host: Fake) -> None:
    folder = Path(str(host.record.socket)).parent
    folder.chmod(0o755)
    try:
        with pytest.raises(NotPrivate):
            Client(host.record)
    finally:
        folder.chmod(0o700)


def test_a_stream_is_read_as_it_comes(client: Client, host: Fake) -> None:
    body = b'{"fake": {"events": ["data: 1\\n\\n", "data: 2\\n\\n"], "step": true}}'
    with client.stream("POST", "/mlxnb/x", body=body) as answer:
        chunks = answer.iter_raw()
        assert next(chunks) == b"data: 1\n\n"
        host.go()
        assert next(chunks) == b"data: 2\n\n"
        host.go()
        assert list(chunks) == []


def test_c25_leaving_a_stream_closes_its_connection(client: Client, host: Fake) -> None:
    body = b'{"fake": {"events": ["data: 1\\n\\n"], "step": true}}'
    with client.stream("POST", "/mlxnb/x", body=body) as answer:
        next(answer.iter_raw())
    host.wait_for_gone()


@pytest.mark.parametrize("phase", ["before headers", "in the stream"])
def test_c25_cancelling_a_task_closes_its_connection(host: Fake, phase: str) -> None:
    fake = b'"wait": true' if phase == "before headers" else b'"events": ["a\\n\\n"], "step": true'

    async def ask(client: AsyncClient) -> None:
        async with client.stream("POST", "/mlxnb/x", body=b'{"fake": {%s}}' % fake) as answer:
            async for _ in answer.content.iter_any():
                pass

    async def main() -> None:
        client = AsyncClient(host.record)
        task = asyncio.create_task(ask(client))
        await asyncio.to_thread(host.wait_for_request)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.to_thread(host.wait_for_gone)
        assert (await client.call("GET", "/mlxnb/y"))["uri"] == "/mlxnb/y"
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/mlxnb/x/é b?q=é", "/mlxnb/x/%C3%A9%20b?q=%C3%A9"),
        ("/mlxnb/x/%C3%A9/a|b//../c?a=b%20c&d=%2F", "/mlxnb/x/%C3%A9/a|b//../c?a=b%20c&d=%2F"),
    ],
)
def test_a_path_goes_as_it_is_but_for_what_has_no_ascii_form(
    host: Fake, path: str, sent: str
) -> None:
    async def main() -> None:
        client = AsyncClient(host.record)
        assert (await client.call("GET", path))["uri"] == sent
        await client.close()

    asyncio.run(main())


def test_w62_a_client_keeps_no_cookies(client: Client) -> None:
    for _ in range(2):
        saw = client.call("GET", "/mlxnb/x")
    assert "Cookie" not in saw["headers"]
