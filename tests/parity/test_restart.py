"""``kill -9``, and a new process that goes on from the disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from engine.running import until
from host.talk import post

from mlxnb.host.remote.engine import RemoteEngine
from mlxnb.link.client import Client
from mlxnb.link.record import HostRecord, records

from .families import FAMILIES, WIDE, Family
from .lives import KINDS, MIB
from .restarting import CONVERSATIONS

TESTS = Path(__file__).parents[1]
every_kind = pytest.mark.parametrize("kind", KINDS)


class Place:
    """Folders of KV, of what was said, and of the models; and processes over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kv, self.said = folder / "kv", folder / "said"
        self.said.mkdir(parents=True)
        self.models = {kind: self._model(number, kind) for number, kind in enumerate(KINDS)}
        self._processes: list[subprocess.Popen[str]] = []

    def _model(self, seed: int, kind: str) -> Path:
        """No two alike: those of equal content would share their KV."""
        family, _, how = kind.partition(" ")
        made = Family(family, WIDE) if how == "8 bits" else FAMILIES[family]
        return made.save(self.folder / "models" / kind.replace(" ", "-"), seed)

    def start(self, do: str, **job: Any) -> subprocess.Popen[str]:
        """Start a process that does something, and says so line by line."""
        paths = {"kv": self.kv, "said": self.said, "cache": self.folder / "cache"}
        job = {"do": do, "same": True, **{k: str(v) for k, v in paths.items()}, **job}
        file = self.folder / f"{do}.json"
        file.write_text(json.dumps(job))
        process = subprocess.Popen(
            [sys.executable, "-m", "parity.restarting", str(file)],
            cwd=TESTS,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def talk_until(self, last: str) -> None:
        """Let one talk until it says so, and kill it."""
        process = self.start("talk", models=[(k, str(p)) for k, p in self.models.items()])
        assert process.stdout is not None
        lines = iter(process.stdout)
        if last not in (line.strip() for line in lines):
            raise AssertionError(process.communicate()[1])
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL

    def ask(self, questions: list[dict[str, Any]], same: bool = True) -> list[dict[str, Any]]:
        """What another process finds; it is ended kindly, and says nothing of an error."""
        process = self.start("ask", questions=questions, same=same)
        _, told = process.communicate(timeout=280)
        assert process.returncode == 0, told
        assert "Traceback" not in told and "ERROR" not in told, told
        found: list[dict[str, Any]] = json.loads((self.said / "found.json").read_text())
        return found

    def ask_all(self) -> dict[str, dict[str, Any]]:
        """Each kind of model, what it was asked before."""
        questions = [{"kind": kind, "model": str(path)} for kind, path in self.models.items()]
        return dict(zip(self.models, self.ask(questions), strict=True))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place where one has talked, flushed, and was killed."""
    place = Place(tmp_path_factory.mktemp("flushed"))
    place.talk_until("flushed")
    yield place
    place.close()


@pytest.fixture(scope="module")
def found(place: Place) -> dict[str, dict[str, Any]]:
    """What another process finds there."""
    return place.ask_all()


@every_kind
def test_what_was_flushed_before_a_kill_is_there(
    found: dict[str, dict[str, Any]], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine tenths of what had been computed; of what is no other's, from disk."""
    seen = found[kind]
    assert seen["wrong"] == []
    shares = seen["cached"] / seen["computed"], seen["own_disk"] / seen["own_computed"]
    with capsys.disabled():
        print(f"\n{kind}: cached {shares[0]:.1%}, from disk where nobody shares {shares[1]:.1%}")
    assert min(shares) >= 0.9


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The same where one was killed in the midst of it all."""
    place = Place(tmp_path_factory.mktemp("interrupted"))
    place.talk_until(f"{CONVERSATIONS // 4} {list(KINDS)[2]}")
    yield place.ask_all()
    place.close()


@every_kind
def test_after_a_kill_at_any_moment_answers_are_the_same(
    interrupted: dict[str, dict[str, Any]], kind: str
) -> None:
    assert interrupted[kind]["wrong"] == []
    assert interrupted[kind]["computed"] > 0


# --- what is something else -------------------------------------------------------------------


def other_tokenizer(model: Path) -> None:
    file = model / "tokenizer.json"
    settings = json.loads(file.read_text("utf-8"))
    settings["added_tokens"][-1]["lstrip"] = True
    file.write_text(json.dumps(settings), "utf-8")


def other_template(model: Path) -> None:
    file = model / "tokenizer_config.json"
    settings = json.loads(file.read_text("utf-8"))
    settings["chat_template"] = settings["chat_template"] + " "
    file.write_text(json.dumps(settings), "utf-8")


def lora(folder: Path, width: int) -> Path:
    """An adapter of rank 2 on the q projections, with weights that are not zero."""
    folder.mkdir()
    parameters = {"rank": 2, "scale": 5.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
    settings = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    mx.random.seed(3)
    weights = {}
    for stem in (f"model.layers.{layer}.self_attn.q_proj" for layer in range(2)):
        weights[f"{stem}.lora_a"] = mx.random.normal((width, 2))
        weights[f"{stem}.lora_b"] = mx.random.normal((2, width))
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


@pytest.fixture(scope="module")
def others(place: Place, found: Any) -> dict[str, dict[str, Any]]:
    """What is found for models that are not quite the same; answers are still cold ones."""
    plain, wide = place.models["llama"], place.models["llama 8 bits"]
    changed: dict[str, Callable[[Path], None]] = {
        "tokenizer": other_tokenizer,
        "template": other_template,
    }
    copies = {}
    for name, change in changed.items():
        copies[name] = shutil.copytree(plain, place.folder / name)
        change(copies[name])
    adapter = str(lora(place.folder / "adapter", 48))
    questions = {
        "none": {"kind": "llama", "model": str(plain)},
        **{name: {"kind": "llama", "model": str(path)} for name, path in copies.items()},
        "adapter": {"kind": "llama", "model": str(plain), "adapter": adapter},
        "4 bits": {"kind": "llama 8 bits", "model": str(wide), "kv_bits": 4},
        "no bits": {"kind": "llama 8 bits", "model": str(wide), "kv_bits": 0},
        "salt": {"kind": "llama", "model": str(plain), "salt": "pepper"},
    }
    asked = place.ask([{**q, "most": 4} for q in questions.values()], same=False)
    return dict(zip(questions, asked, strict=True))


@pytest.mark.parametrize(
    "change", ["tokenizer", "template", "adapter", "4 bits", "no bits", "salt"]
)
def test_what_is_another_model_or_another_salt_finds_nothing(
    others: dict[str, dict[str, Any]], change: str
) -> None:
    assert others[change]["wrong"] == []
    assert others[change]["disk"] == 0
    assert others["none"]["disk"] > 0


# --- a host ------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], HostRecord]]:
    """Start ``python -m mlxnb.host`` over the folders of this test."""
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    models = tmp_path / "models"
    FAMILIES["llama"].save(models / "tiny")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"models_dir": str(models), "disk": 64 * MIB, "budget": 64 * MIB}))
    processes = []

    def start() -> HostRecord:
        command = [sys.executable, "-m", "mlxnb.host", "--config", str(config)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        processes.append(process)
        until(lambda: any(r.process.pid == process.pid for r in records("headless")), 120)
        return next(r for r in records("headless") if r.process.pid == process.pid)

    yield start
    for process in processes:
        process.kill()
        process.wait()


def respond(record: HostRecord, **body: Any) -> dict[str, Any]:
    client = Client(record)
    try:
        asked = {"model": "tiny", "max_output_tokens": 12, "temperature": 0, **body}
        answer = post(client, asked, "/mlxnb/v1/responses")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told
    finally:
        client.close()


def on_disk(record: HostRecord) -> int:
    """Tokens whose KV is on disk, in no block in memory."""
    engine = RemoteEngine(record)
    try:
        frame = engine.prefix_cache()
        return int(frame.tokens[frame.tier == "disk"].sum())
    finally:
        engine.close()


def test_a_response_is_continued_in_a_new_host(host: Callable[[], HostRecord]) -> None:
    first = host()
    said = respond(first, instructions="You say what you see. " * 8, input="hello there")
    said = respond(first, input="and on " * 20, previous_response_id=said["id"])
    before = said["usage"]["input_tokens"] + said["usage"]["output_tokens"]
    until(lambda: on_disk(first) >= before - 17, 60)
    os.kill(first.process.pid, signal.SIGKILL)
    again = respond(host(), input="so what is it?", previous_response_id=said["id"])
    cached = again["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached > 0.9 * before
