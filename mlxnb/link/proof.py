"""What a caller and a host prove to each other with every request over a host's socket.

The caller signs the request and whom it speaks for with the secret of the host's record; the host
answers with a proof of its own over the caller's nonce. So neither a process that took a socket's
path nor one that found a socket gets or learns anything. A door that has authenticated somebody
says so in the identity; a host believes it because of the signature.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from mlxnb.errors import ProofFailed

NONCE = "X-Mlxnb-Nonce"
AUTH = "X-Mlxnb-Auth"
IDENTITY = "X-Mlxnb-Identity"
PROOF = "X-Mlxnb-Proof"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a request comes from.

    Attributes
    ----------
    name
        The user's name with Jupyter, or the key's.
    kind
        ``jupyter``: may do all that the user may. ``key``: a client with an mlxnb key, to whom
        the control routes are closed.
    """

    name: str
    kind: Literal["jupyter", "key"]

    @property
    def caller(self) -> str:
        """One text for both: what turns and stored responses are filed under."""
        return f"{self.kind}:{self.name}"


def owner() -> Identity:
    """The user whom this process runs for: the Hub's user, else the system's."""
    return Identity(os.environ.get("JUPYTERHUB_USER") or getpass.getuser(), "jupyter")


def sign(secret: str, method: str, path: str, identity: Identity) -> dict[str, str]:
    """The headers of a request to the host with that secret.

    Parameters
    ----------
    path
        As it is sent: percent-encoded, with the query.
    """
    nonce = secrets.token_hex(16)
    who = json.dumps(asdict(identity), separators=(",", ":"))
    return {NONCE: nonce, IDENTITY: who, AUTH: _mac(secret, "caller", nonce, method, path, who)}


def verify(secret: str, headers: Mapping[str, str], method: str, path: str) -> Identity:
    """Whom a request speaks for.

    Raises
    ------
    ProofFailed
        A header is missing or malformed, or the signature is not of this request and secret.
    """
    nonce, who = headers.get(NONCE, ""), headers.get(IDENTITY, "")
    expected = _mac(secret, "caller", nonce, method, path, who)
    if not nonce or not _same(headers.get(AUTH, ""), expected):
        raise ProofFailed("the request is not signed with this host's secret")
    try:
        entry = json.loads(who)
        return Identity(entry["name"], entry["kind"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProofFailed(f"{IDENTITY} is malformed") from error


def prove(secret: str, headers: Mapping[str, str]) -> str:
    """The value of ``X-Mlxnb-Proof`` in the answer to a request with these headers."""
    return _mac(secret, "host", headers.get(NONCE, ""))


def check(secret: str, sent: Mapping[str, str], answered: Mapping[str, str]) -> None:
    """Raise ``ProofFailed`` unless an answer is from the host with that secret.

    Parameters
    ----------
    sent, answered
        The headers of the request and of its answer.
    """
    if not _same(answered.get(PROOF, ""), prove(secret, sent)):
        raise ProofFailed("what answers on the host's socket does not know the host's secret")


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _mac(secret: str, *parts: str) -> str:
    # lengths first, so that no two lists of parts make one text
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
