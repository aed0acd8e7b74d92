"""`emobench evaluate --rescore`: metrics of finished generations are computed anew, and nothing is generated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.seals import write_seal
from emobench.kinds.generation import metric as features

SMALL = (
    *("--suite", "lm-quick", "--limit", "30", "--offline", "--quiet"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
)
SEEDS = ("--set", "mauve.seeds=[0]")
TRAINED = ("--objective", "mle", "--seed", 3, "--set", "recipe.max_length=32")


@dataclass(frozen=True)
class Place:
    """A folder of runs and a board, and the command line with its options there."""

    command: Callable[..., Any]
    folder: Path
    given: tuple[Any, ...]

    def __call__(self, verb: str, *arguments: object) -> Any:
        places = ("--runs", self.folder / "runs", "--leaderboard", self.folder / "board")
        return self.command(verb, *self.given, *places, *SMALL, *arguments, "--json")

    def entry(self, verb: str, *arguments: object) -> Any:
        done = self(verb, *arguments).ok()
        return done.json["entries"][0]

    def changed(self, kind: str) -> dict[str, int]:
        """Return the files of a kind of stage, with their times of change."""
        root = self.folder / "runs" / kind
        return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Place, Any]:
    """A training, its generation and its scores."""
    place = Place(command, tmp_path_factory.mktemp("whole"), ("--model", small_model, "--data-dir", small_data))
    return place, place.entry("run", *SEEDS, *TRAINED)


@pytest.fixture
def place(whole: tuple[Place, Any], tmp_path: Path) -> Place:
    """A copy of what the run left."""
    shutil.copytree(whole[0].folder, tmp_path / "copy")
    return Place(whole[0].command, tmp_path / "copy", whole[0].given)


def test_the_same_code_gives_the_same_entry_from_scores_that_are_made_anew(whole: Any, place: Place) -> None:
    before = {kind: place.changed(kind) for kind in ("train", "generate", "features", "score", "examples")}
    assert place.entry("evaluate", "--rescore", *SEEDS, *TRAINED) == whole[1]
    assert len(list((place.folder / "board").rglob("[0-9a-f]*.json"))) == 1
    after = {kind: place.changed(kind) for kind in before}
    for kind in ("train", "generate"):
        assert after[kind] == before[kind]
    for kind in ("features", "score", "examples"):
        assert before[kind]
        assert after[kind].keys() == before[kind].keys()
        assert all(after[kind][path] > time for path, time in before[kind].items())


def test_vectors_of_human_texts_are_made_anew_once(place: Place) -> None:
    before = place.changed("features")
    (vectors,) = (place.folder / "runs/features").glob("*/features.npy")
    right = np.load(vectors)
    np.save(vectors, np.zeros_like(right))  # as if other code had made them
    write_seal(vectors.parent)
    pair = ("--objective", "mle", "--seed", 3, "--seed", 4, "--set", "recipe.max_length=32")
    assert place("run", *SEEDS, *pair).code == 0
    made = 0
    original = features.embed

    def embed(texts: Sequence[str], *arguments: Any, **options: Any) -> np.ndarray:
        nonlocal made
        made += 1
        return original(texts, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "embed", embed)
        assert place("evaluate", "--rescore", *SEEDS, *pair).code == 0
    assert made == 3  # the texts of two seeds, and the human ones of both
    assert place.changed("features").keys() == before.keys()
    assert (np.load(vectors) == right).all()
    facts = json.loads((vectors.parent / "stage.json").read_text())
    assert version("emobench").startswith(f"{facts['packages']['emobench']}.")


def test_scores_that_were_others_are_superseded(whole: Any, place: Place) -> None:
    (file,) = (place.folder / "runs/score").glob("*/scores.json")
    scores = json.loads(file.read_text())
    # As if older code had not been able to compute it.
    del scores["scores"]["lm-quick/rouge1"]
    file.write_text(json.dumps({**scores, "missing": {"lm-quick/rouge1": "It failed."}}))
    write_seal(file.parent)
    shutil.rmtree(place.folder / "board")
    old = place.entry("run", *SEEDS, *TRAINED)
    assert old["missing"] == {"lm-quick/rouge1": "It failed."}
    new = place.entry("evaluate", "--rescore", *SEEDS, *TRAINED)
    assert new["supersedes"] == old["id"]
    assert new["metrics"] == whole[1]["metrics"]


def test_other_settings_of_a_metric_are_another_protocol_of_the_same_texts(whole: Any, place: Place) -> None:
    before = place.changed("generate")
    found = place.entry("evaluate", "--rescore", *TRAINED, "--set", "mauve.seeds=[1,2]")
    assert found["protocols"] != whole[1]["protocols"]
    assert found["runs"][0]["samples"] == whole[1]["runs"][0]["samples"]
    assert found["metrics"]["lm-quick/rouge1"] == whole[1]["metrics"]["lm-quick/rouge1"]
    assert place.changed("generate") == before
    assert len(place.changed("score")) == 2 * len(whole[0].changed("score"))


def test_what_is_missing_is_named_with_what_to_type(place: Place) -> None:
    never = place("evaluate", "--rescore", *SEEDS, "--objective", "emo", "--set", "recipe.max_length=32")
    assert never.code == 2
    assert "/train/" in never.err
    assert "the training of emo, seed 0, on wikitext2, and `emobench evaluate` trains nothing" in never.err
    assert "emobench run --model" in never.err
    assert "--rescore" not in never.err
    other = ("--set", "generation.sampling.seed=1")
    for more, row in (((*TRAINED, *other), "mle, seed 3"), ((), "pretrained, seed 0")):
        place("evaluate", "--rescore", *SEEDS, *more).refused(f"of lm-quick of {row}, is missing", "emobench")


def test_samples_that_are_missing_or_altered_are_an_error(place: Place) -> None:
    (samples,) = (place.folder / "runs/generate").glob("*/samples.jsonl")
    remove = f"rm -r {samples.parent} && emobench run"
    samples.write_text(samples.read_text().replace("ba", "be"))
    place("evaluate", "--rescore", *SEEDS, *TRAINED).refused(f"{samples} was altered", remove)
    write_seal(samples.parent)  # made anew, on another machine
    place("evaluate", "--rescore", *SEEDS, *TRAINED).refused(f"was altered: {samples}", remove)
    samples.unlink()
    place("evaluate", "--rescore", *SEEDS, *TRAINED).refused(f"{samples} is gone", remove)


def test_options_that_contradict_one_another_are_refused(place: Place) -> None:
    assert "--seed is the seed of a training" in place("evaluate", *SEEDS, "--seed", 0).err
    place("evaluate", "--rescore", "--dry-run", *SEEDS).refused("--rescore", "--dry-run")
