"""Names of models: W9, W68."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from models.tiny import byte_level, config_of, save_folder
from scripted import scripted_folder

from mlxnb.errors import ModelNotFound
from mlxnb.models.source import ModelSource
from mlxnb.sessions.serving.catalog import Catalog

from .world import World


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models: a whole one, one with code of its own, and something else."""
    made = tmp_path_factory.mktemp("models")
    tokenizer = byte_level("smollm")
    save_folder(made / "tiny", config_of("qwen3", tokenizer.get_vocab_size()), tokenizer)
    scripted_folder(made / "coded", ["One."])
    (made / "notes").mkdir()
    return made


def test_models_of_a_folder_go_by_their_folders_names(folder: Path) -> None:
    catalog = Catalog(models_dir=folder, machine=False)
    assert catalog.names([]) == ["tiny"]
    assert catalog.find("tiny", []) == "tiny"


def test_a_model_with_code_of_its_own_is_not_there(folder: Path) -> None:
    """W68"""
    catalog = Catalog(models_dir=folder, machine=False)
    with pytest.raises(ModelNotFound, match="tiny"):
        catalog.find("coded", [])


@pytest.mark.parametrize("name", ["nobody/nothing", "../tiny", "/etc", "", "tiny\0", "*"])
def test_names_are_looked_up_and_not_followed(folder: Path, name: str) -> None:
    """No path, no download."""
    with pytest.raises(ModelNotFound, match="there are: tiny"):
        Catalog(models_dir=folder, machine=False).find(name, [])


@pytest.mark.parametrize(
    ("asked", "found"),
    [("claude-opus-5", "tiny"), ("gpt-x", "other"), ("exact", "other"), ("other", "other")],
)
def test_aliases_may_be_globs(folder: Path, asked: str, found: str) -> None:
    """C52"""
    aliases = {"claude-*": "tiny", "gpt-?": "other", "exact": "other", "*": "tiny"}
    catalog = Catalog(models_dir=folder, aliases=aliases, machine=False)
    assert catalog.find(asked, ["other"]) == found


def test_a_loaded_models_own_name_goes_before_an_alias() -> None:
    catalog = Catalog(aliases={"one": "two"}, machine=False)
    assert catalog.find("one", ["one", "two"]) == "one"


def test_only_allowed_models_can_be_asked_for(folder: Path) -> None:
    catalog = Catalog(models_dir=folder, allowed=["t*"], aliases={"x": "big"}, machine=False)
    assert catalog.names(["big"]) == ["tiny"]
    for name in ("big", "x"):
        with pytest.raises(ModelNotFound):
            catalog.find(name, ["big"])


def test_an_answer_has_the_asked_name_and_its_row_the_models(
    world: World, talker: Callable[..., str]
) -> None:
    world.aliases = {"claude-*": "talker"}
    talker("One.")
    answer = world.ask("a", model="claude-next")
    assert (answer.asked_model, answer.model, answer.record.model) == (
        "claude-next",
        "talker",
        "talker",
    )


def test_cards_say_what_clients_want_to_know(world: World, talker: Callable[..., str]) -> None:
    world.aliases = {"helper": "talker", "claude-*": "talker"}
    talker("One.", loaded=False)
    cards = {card.id: card for card in world.service.models()}
    assert cards.keys() == {"talker", "helper"}
    assert cards["helper"].context_length == 4096
    assert not cards["talker"].loaded and cards["talker"].created > 0
    world.ask("a")
    assert world.service.model("claude-x").loaded


def test_a_model_found_for_the_service_needs_no_folder(folder: Path) -> None:
    catalog = Catalog([ModelSource("mine", folder / "tiny")], machine=False)
    assert catalog.find("mine", []) == "mine"
