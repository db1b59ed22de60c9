"""How clients are told to reach what is served."""

from __future__ import annotations

import pytest

from mlxnb.notebook.serving import through_hub

PREFIX = "/hubs/user/ada/"


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, None),
        ({"PREFIX": PREFIX}, "<address of the Hub>/hubs/user/ada/mlxnb"),
        ({"PREFIX": PREFIX, "HOST": "", "PUBLIC": ""}, "<address of the Hub>/hubs/user/ada/mlxnb"),
        ({"PREFIX": "/user/ada/", "HOST": "https://ada.h.org"}, "https://ada.h.org/user/ada/mlxnb"),
        ({"PREFIX": PREFIX, "PUBLIC": f"https://h.org{PREFIX}"}, f"https://h.org{PREFIX}mlxnb"),
    ],
)
def test_a_hubs_address_is_told_where_it_is_known(
    environment: dict[str, str], url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"PREFIX": "SERVICE_PREFIX", "HOST": "HOST", "PUBLIC": "PUBLIC_URL"}
    for short, name in names.items():
        monkeypatch.delenv(f"JUPYTERHUB_{name}", raising=False)
        if short in environment:
            monkeypatch.setenv(f"JUPYTERHUB_{name}", environment[short])
    assert through_hub() == url
