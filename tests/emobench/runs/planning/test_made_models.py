"""A model that the harness makes is what its weights are: whoever made them, and on however many threads."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from emobench import registry
from emobench.core.errors import ConfigError, ModelError, UnknownNameError
from emobench.data.texts import Texts
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entry
from emobench.models.catalog import ModelSource, find_model
from emobench.models.folder import file_digest, identity
from emobench.runs.dry_run import TO_DO, make_outline
from emobench.runs.execution.execution import Execution
from emobench.runs.planning import tiny_models
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.run import require_trained, run_plan
from emobench.runs.stages import train
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.stage import Stages


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let made models be pre-trained on a few texts."""
    whole = tiny_models.load_texts

    def first(*given: Any, **options: Any) -> Texts:
        texts = whole(*given, **options)
        return replace(texts, texts=texts.texts[:60])

    monkeypatch.setattr(tiny_models, "load_texts", first)


def request(runs: Path, model: str = "tiny-oracle", **given: Any) -> Request:
    settings = {"recipe": {"max_tokens": 2048}, "mauve": {"seeds": [0]}}
    return Request(
        **{"suite": "oracle-language", "objectives": ("mle",), "seeds": (0,), "settings": settings, **given},
        model=model,
        runs=runs,
        leaderboard=runs / "board",
        offline=True,
        limit=10,
    )


def made(runs: Path, model: str = "tiny-oracle") -> Path:
    asked = request(runs, model)
    base = base_model(model, asked)
    return Execution(asked, base).folder(base.made_by.stage) / "model"


def flip(folder: Path) -> None:
    """Change the last bit of a model's last weight."""
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


@pytest.mark.slow
def test_one_and_two_threads_make_the_same_weights(short: None, tmp_path: Path) -> None:
    before, weights = torch.get_num_threads(), set()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        weights.add(file_digest(made(tmp_path / str(threads)) / "model.safetensors"))
        assert torch.get_num_threads() == threads  # the pre-training alone has a number of its own
    torch.set_num_threads(before)
    assert len(weights) == 1


def test_a_made_model_is_identified_as_a_folder_of_its_files_is(short: None, tmp_path: Path) -> None:
    folder = made(tmp_path)
    base = base_model("tiny-oracle", request(tmp_path))
    assert base.identity == identity(ModelSource("any", str(folder), None, "local"))
    assert base.identity["files"]["model.safetensors"] == file_digest(folder / "model.safetensors")
    assert "transformers_version" not in (folder / "config.json").read_text()
    as_folder = base_model(str(folder), request(tmp_path))
    assert as_folder.entry_fields()["revision"] == base.entry_fields()["revision"]


def test_before_it_is_made_its_weights_are_not_known(tmp_path: Path) -> None:
    base = base_model("tiny-oracle", request(tmp_path))
    assert not base.has_identity
    with pytest.raises(ModelError, match="tiny-oracle is not made yet"):
        _ = base.identity


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_equal_ingredients_and_other_weights_are_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine that rounds otherwise: the board shows such runs apart, and compare refuses them."""
    entries: list[Entry] = []
    leave_out = train.leave_out_version
    for place in ("one", "other"):
        if place == "other":
            monkeypatch.setattr(train, "leave_out_version", lambda folder: (leave_out(folder), flip(folder)))
        entries += run_plan(make_plan(request(tmp_path / place)))
    one, other = (entry.model for entry in entries)
    assert one.name == other.name == "tiny-oracle"
    assert one.pretraining == other.pretraining
    assert one.revision != other.revision
    assert entries[0].runs[0].key != entries[1].runs[0].key
    (told,) = differences(*entries)
    assert told.startswith("model: tiny-oracle (sha256:")
    assert told.endswith("), whose weights or tokenizers differ")


@pytest.mark.usefixtures("short")
def test_a_made_model_that_was_altered_since_is_made_anew_and_is_what_it_was(tmp_path: Path) -> None:
    whole = base_model("tiny-oracle", request(tmp_path))
    folder = made(tmp_path)
    before_identity, before = whole.identity, (folder / "model.safetensors").stat()
    flip(folder)
    os.utime(folder / "model.safetensors", ns=(before.st_atime_ns, before.st_mtime_ns))
    again = base_model("tiny-oracle", request(tmp_path))
    assert not again.has_identity
    made(tmp_path)
    assert again.identity == before_identity


@pytest.mark.usefixtures("short")
def test_a_dry_run_makes_nothing_and_says_that_keys_are_not_known(tmp_path: Path) -> None:
    said = "Finished stages are unknown until tiny-oracle is trained: its weights are part of every key."
    before = make_outline(request(tmp_path))
    assert said in before.notes()
    assert {line.state for line in before.lines} == {TO_DO}
    assert not any(tmp_path.iterdir())
    made(tmp_path)
    assert said not in make_outline(request(tmp_path)).notes()


def test_evaluate_of_a_training_from_a_model_that_is_not_made_says_what_to_run(tmp_path: Path) -> None:
    plan = make_plan(request(tmp_path, command="emobench evaluate --objective mle"))
    stages = Stages(tmp_path)
    with pytest.raises(ConfigError, match=r"tiny-oracle is not made yet in .* with: emobench run --objective mle"):
        require_trained(plan, stages)


@pytest.mark.usefixtures("short")
def test_what_a_user_can_get_wrong_is_said_before_the_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(*_: object) -> None:
        raise ConfigError("no row")

    monkeypatch.setattr(PackedCorpora, "rows", packed)
    with pytest.raises(ConfigError, match="no row"):
        run_plan(make_plan(request(tmp_path)))
    assert not (tmp_path / "train").exists()


@pytest.mark.usefixtures("short")
def test_another_seed_makes_a_replicate_of_the_model(tmp_path: Path) -> None:
    """The same in all but the seed, so that several bases of one setting can stand for it."""
    found = {}
    for seed, name in enumerate(("tiny-oracle", "tiny-oracle(seed=1)")):
        folder = made(tmp_path, name)
        base = base_model(name, request(tmp_path, name))
        found[name] = base.entry_fields()
        assert found[name]["name"] == name
        assert found[name]["source"] == "tiny-oracle"
        assert found[name]["pretraining"]["seed"] == seed
        assert json.loads((folder.parent / "stage.json").read_text())["seed"] == seed
    one, other = found.values()
    assert one["pretraining"]["setting"] == other["pretraining"]["setting"]
    assert one["revision"] != other["revision"]
    assert one["parameters"] == other["parameters"]


def test_the_setting_changes_with_what_a_model_is_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def setting(name: str) -> str:
        base = base_model(name, request(tmp_path, name))
        assert base.made_by is not None
        return base.made_by.pretraining_fields()["setting"]

    whole = registry.find_recipe
    settings = [setting("tiny-oracle"), setting("tiny-icl")]
    monkeypatch.setattr("emobench.runs.planning.ingredients.find_recipe", lambda name: whole(name, {"epochs": 2}))
    settings.append(setting("tiny-oracle"))
    assert len(set(settings)) == 3


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("tiny-oracle(seed=-1)", ModelError, r"`seed` is -1; expected a number from 0 to 2\*\*32 - 1"),
        ("tiny-oracle(seed=1.5)", ModelError, r"`seed` is 1\.5"),
        ("tiny-oracle(seed=true)", ModelError, "`seed` is True"),
        ("tiny-oracle(sead=1)", UnknownNameError, "'sead'; did you mean 'seed'"),
        ("tiny-oracle(1)", ConfigError, "expected name\\(key=value"),
        ("gpt2(seed=1)", ModelError, "only models that the harness makes have a seed: tiny-oracle, tiny-icl, tiny-lm"),
    ],
)
def test_a_made_model_takes_a_seed_and_nothing_else(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        find_model(name, offline=True)
