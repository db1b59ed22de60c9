"""W62, W63: what both ends of a host's socket prove."""

from __future__ import annotations

import getpass

import pytest

from mlxnb.errors import ProofFailed
from mlxnb.link import proof
from mlxnb.link.proof import Identity

ALICE = Identity("alice", "jupyter")


def test_a_signed_request_speaks_for_its_identity() -> None:
    headers = proof.sign("s", "POST", "/mlxnb/v1/responses?a=1", ALICE)
    assert proof.verify("s", headers, "POST", "/mlxnb/v1/responses?a=1") == ALICE


@pytest.mark.parametrize(
    ("secret", "method", "path"),
    [("other", "POST", "/a"), ("s", "GET", "/a"), ("s", "POST", "/b"), ("s", "POST", "/a?b")],
)
def test_a_signature_is_of_one_secret_method_and_path(secret: str, method: str, path: str) -> None:
    headers = proof.sign("s", "POST", "/a", ALICE)
    with pytest.raises(ProofFailed):
        proof.verify(secret, headers, method, path)


@pytest.mark.parametrize("header", [proof.NONCE, proof.AUTH, proof.IDENTITY])
@pytest.mark.parametrize("value", [None, "", "é", '{"name":"root","kind":"jupyter"}'])
def test_a_changed_or_missing_header_is_refused(header: str, value: str | None) -> None:
    headers = proof.sign("s", "POST", "/a", ALICE)
    if value is None:
        del headers[header]
    else:
        headers[header] = value
    with pytest.raises(ProofFailed):
        proof.verify("s", headers, "POST", "/a")


def test_a_host_proves_that_it_knows_the_secret() -> None:
    sent = proof.sign("s", "GET", "/a", ALICE)
    proof.check("s", sent, {proof.PROOF: proof.prove("s", sent)})


def test_a_hosts_proof_is_of_one_request() -> None:
    first, second = (proof.sign("s", "GET", "/a", ALICE) for _ in range(2))
    with pytest.raises(ProofFailed):
        proof.check("s", second, {proof.PROOF: proof.prove("s", first)})


def test_what_does_not_know_the_secret_cannot_answer() -> None:
    sent = proof.sign("s", "GET", "/a", ALICE)
    for answered in ({}, {proof.PROOF: sent[proof.AUTH]}, {proof.PROOF: proof.prove("t", sent)}):
        with pytest.raises(ProofFailed):
            proof.check("s", sent, answered)


def test_a_key_and_a_user_of_one_name_are_two_callers() -> None:
    assert Identity("a", "key").caller != Identity("a", "jupyter").caller


def test_the_owner_is_the_hubs_user_where_there_is_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    assert proof.owner() == Identity(getpass.getuser(), "jupyter")
    monkeypatch.setenv("JUPYTERHUB_USER", "alice")
    assert proof.owner() == ALICE
