"""A real JupyterLab, a real Chromium, and notebooks in it whose cells run in real kernels."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from jupyter.server import environment
from link.fake_host import until
from playwright.sync_api import BrowserContext, Locator, Page, Route, expect, sync_playwright

TESTS = Path(__file__).parents[1]
DEADLINE_MS = 60_000
expect.set_options(timeout=DEADLINE_MS)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
READY = """() => {
    const { shell } = window.jupyterapp ?? {};
    const kernel = shell?.currentWidget?.context?.sessionContext?.session?.kernel;
    return kernel?.status === "idle" && kernel.info && true;
}"""
RUN = """async ([source, wait]) => {
    const { shell, commands } = window.jupyterapp;
    const { content, context } = shell.currentWidget;
    const notebook = context.model.sharedModel;
    const at = notebook.cells.length;
    notebook.insertCell(at, { cell_type: "code", source });
    content.activeCellIndex = at;
    const ran = commands.execute("notebook:run-cell");
    if (wait) await ran;
    return at;
}"""
SHUTDOWN = "() => jupyterapp.shell.currentWidget.context.sessionContext.shutdown()"


class Lab:
    """A running JupyterLab server.

    ``folder`` is what it shows, ``settings`` what its user has set, by plugin.
    """

    def __init__(self, process: subprocess.Popen[bytes], home: Path, token: str) -> None:
        self.process, self.home, self.token = process, home, token
        self.folder = home / "notebooks"
        self.root = self._root()

    def _root(self) -> str:
        def info() -> list[Path]:
            assert self.process.poll() is None, self.log
            return list((self.home / "runtime").glob("jpserver-*.json"))

        until(lambda: info() and info()[0].read_text().endswith("}"))
        return f"http://127.0.0.1:{json.loads(info()[0].read_text())['port']}"

    @property
    def log(self) -> str:
        """What the server has said, and its kernels with it."""
        return (self.home / "log").read_text()

    def set(self, plugin: str, **values: Any) -> None:
        """Set what a user sets for a plugin; pages that are loaded afterwards have it."""
        path = self.home / "config" / "lab" / "user-settings" / plugin.replace(":", "/")
        path = path.with_name(f"{path.name}.jupyterlab-settings")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def url(self, name: str) -> str:
        """Where a notebook is, opened alone."""
        return f"{self.root}/lab/tree/{name}?reset&token={self.token}"

    def write(self, name: str, *sources: str, metadata: Mapping[str, Any] | None = None) -> Path:
        """Make a notebook file of code cells."""
        made = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source) for source in sources],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
            | dict(metadata or {}),
        )
        path = self.folder / name
        nbformat.write(made, path)
        return path


@contextmanager
def lab_server(home: Path) -> Iterator[Lab]:
    """Start JupyterLab on a free port, with nothing of this user's configuration."""
    token = secrets.token_hex(16)
    (home / "notebooks").mkdir(parents=True)
    (home / "config").mkdir()
    config = {
        "ServerApp": {
            "ip": "127.0.0.1",
            "port": 0,
            "root_dir": str(home / "notebooks"),
            "allow_root": True,
            "open_browser": False,
            "jpserver_extensions": {"mlxnb": True, "jupyter_lsp": False},
        },
        "IdentityProvider": {"token": token},
        "LabApp": {"expose_app_in_browser": True},
        "MlxNb": {"start_host": False},
    }
    (home / "config" / "jupyter_server_config.json").write_text(json.dumps(config))
    log = (home / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab"],
        env=environment(home)
        | {"IPYTHONDIR": str(home / "ipython"), "TRANSFORMERS_VERBOSITY": "error"},
        cwd=home,
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
    )
    try:
        lab = Lab(process, home, token)
        for plugin, values in SETTINGS.items():
            lab.set(plugin, **values)
        yield lab
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


@contextmanager
def chromium(scratch: Path) -> Iterator[BrowserContext]:
    """Start the system's Chromium with an empty profile."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "the tests of widgets need Chromium on the PATH: apt-get install chromium"
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            scratch,
            executable_path=program,
            args=FLAGS,
            viewport={"width": 1280, "height": 1000},
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(DEADLINE_MS)
        try:
            yield context
        finally:
            context.close()


class Notebook:
    """A notebook that is open in a page of its own.

    Attributes
    ----------
    requests
        The addresses of all that the page has asked for.
    """

    def __init__(self, lab: Lab, page: Page, name: str) -> None:
        self.lab, self.page, self.name = lab, page, name
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        self.open()

    def open(self) -> None:
        """Load the page, be it again, and wait until the notebook is there."""
        self.page.goto(self.lab.url(self.name))
        self.page.wait_for_function(READY)

    def without_kernel(self) -> None:
        """Load the page again with no kernel to be had."""
        self.page.route("**/api/sessions*", _refuse_to_start)
        self.page.goto(self.lab.url(self.name))

    def start(self, source: str) -> Locator:
        """Add a cell, run it and do not wait for its end; the cell."""
        return self._run(source, wait=False)

    def run(self, source: str) -> Locator:
        """Add a cell, run it and wait until it has ended well; the cell."""
        cell = self._run(source, wait=True)
        said = cell.locator('[data-mime-type$=".stderr"], [data-mime-type$=".error"]')
        assert said.count() == 0, said.all_inner_texts()
        return cell

    def _run(self, source: str, wait: bool) -> Locator:
        at = self.page.evaluate(RUN, [source, wait])
        return self.page.locator(f'.jp-Cell[data-windowed-list-index="{at}"]')

    @property
    def cells(self) -> int:
        """How many cells it has; the page holds only those that are near."""
        return int(self.page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length"))

    def command(self, name: str, **values: Any) -> None:
        """Carry out a command of JupyterLab's, such as ``docmanager:save``."""
        self.page.evaluate("([n, v]) => jupyterapp.commands.execute(n, v)", [name, values])

    def saved(self) -> str:
        """The notebook's file after it was saved."""
        self.command("docmanager:save")
        return (self.lab.folder / self.name).read_text("utf-8")

    def close(self) -> None:
        """End its kernel and close the page."""
        self.page.evaluate(SHUTDOWN)
        self.page.close()


def _refuse_to_start(route: Route) -> None:
    if route.request.method == "POST":
        route.fulfill(status=500, body='{"message": "no kernels today"}')
    else:
        route.continue_()
