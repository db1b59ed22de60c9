from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from link.fake_host import Fake, fake_host

from jupyter.server import Server, notebook_server


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory of the module's own."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLXNB_STATE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[Server]:
    """A notebook server that starts no host of its own."""
    folder = tmp_path_factory.mktemp("server")
    with notebook_server(folder, start_host=False, body_limit_mib=0.25) as running:
        yield running


@pytest.fixture(scope="module")
def running_host(state: Path) -> Iterator[Fake]:
    with fake_host(models="demo") as fake:
        yield fake


@pytest.fixture
def host(running_host: Fake) -> Fake:
    """A host that has the model ``demo`` and has seen nothing yet."""
    running_host.forget()
    return running_host
