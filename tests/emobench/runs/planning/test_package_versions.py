"""A stage's key holds the versions of the packages that this stage uses, and of no others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import PluginError
from emobench.core.settings import parse_overrides
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS
from emobench.registry import load_objective
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request

Update = Callable[..., None]

SHOTS = """
import numpy as np
import emobench
class Last(emobench.Retriever):
    name = "last"
    packages = {packages}
    def retrieve(self, pool, queries, count, context):
        return np.tile(np.arange(len(pool) - count, len(pool)), (len(queries), 1))
@emobench.hookimpl
def emobench_retrievers():
    return [Last]
"""
LOSS = """
import emobench
class Flat(emobench.StatisticsObjective):
    name = "flat"
    version = "1"
    def loss(self, s):
        return -s.log_prob
@emobench.hookimpl
def emobench_objectives():
    return [Flat]
"""
REQUIRES = (
    'Requires-Dist: emobench\nRequires-Dist: pluggy>=1\nRequires-Dist: none-such; extra == "x"\nRequires-Dist: not-here'
)


@pytest.fixture
def update(monkeypatch: pytest.MonkeyPatch) -> Update:
    """Let packages have another version."""

    def to(**versions: str) -> None:
        known = {name.replace("_", "-"): number for name, number in versions.items()}
        monkeypatch.setattr("emobench.core.versions.version", lambda name: known.get(name) or version(name))

    return to


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What installs a distribution with a retriever `last` and an objective `flat`, over the one before."""
    site = tmp_path / "site"

    def install(number: str, packages: tuple[str, ...] = ()) -> None:
        info = site / "acme_shots.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (site / "acme_shots.py").write_text(SHOTS.format(packages=packages))
        (site / "acme_loss.py").write_text(LOSS)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme.shots\nVersion: {number}\n{REQUIRES}\n")
        points = "[emobench.components]\nlast = acme_shots\n[emobench.objectives]\nflat = acme_loss\n"
        (info / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(str(site))
        for module in ("acme_shots", "acme_loss"):
            monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def generation_keys(model: Path, data: Path, *settings: str) -> tuple[str, str, str]:
    """Return the keys of the training, the generation and the scores of a task of generation."""
    small = ("recipe.max_length=32", "generation.max_length=32", "generation.prefix=4", "generation.continuation=8")
    request = Request(
        suite="lm-quick",
        objectives=("mle",),
        seeds=(0,),
        offline=True,
        limit=30,  # type: ignore[arg-type]
        model=str(model),
        data_dirs=(data,),
        settings=parse_overrides([*small, *settings]),
    )
    plan = make_plan(request)
    (training,), (task,) = list(plan.trainings()), plan.evaluated()
    return training.key, task.generation.key, task.scores.key


def icl_keys(model: Path, labelled: Path, retriever: str = "bm25") -> tuple[str, str]:
    """Return the keys of an in-context pass and of its scores."""
    settings = parse_overrides(["tasks=sst2", f"icl.retriever={retriever}", "icl.shots=2"])
    given: dict[str, Any] = {"suite": "nlu", "objectives": ("pretrained",), "offline": True}
    plan = make_plan(Request(**given, model=str(model), data_dirs=(labelled,), settings=settings))
    (task,) = plan.evaluated()
    return task.generation.key, task.scores.key


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ((), {"all": ("torch", "transformers", "accelerate"), "scores": ("rouge-score", "mauve-text", "faiss-cpu")}),
        (("recipe.lora=true",), {"all": ("peft",)}),
        (("generation.stemming=true",), {"scores": ("nltk",)}),
    ],
)
def test_a_package_is_in_the_keys_of_the_stages_that_use_it(
    settings: tuple[str, ...], changed: dict[str, tuple[str, ...]], small_model: Path, small_data: Path, update: Update
) -> None:
    before = generation_keys(small_model, small_data, *settings)
    others = {"peft", "nltk", "sentence-transformers", "bm25s", "lm-eval"}.difference(*changed.values())
    for stages, packages in {**changed, "none": tuple(others)}.items():
        for package in packages:
            update(**{package.replace("-", "_"): "99.0.1"})
            after = generation_keys(small_model, small_data, *settings)
            # A task's keys hold those of the training.
            expected = {"all": [True] * 3, "scores": [False, False, True], "none": [False] * 3}[stages]
            assert [one != other for one, other in zip(before, after, strict=True)] == expected, package


@pytest.mark.parametrize(
    ("retriever", "packages"),
    [("bm25", {"bm25s", "torch"}), ("fixed", {"torch"}), ("random", {"numpy", "torch"})],
)
def test_an_in_context_pass_depends_on_what_finds_its_shots_and_on_no_metric_of_texts(
    retriever: str, packages: set[str], byte_model: Path, labelled: Path, update: Update
) -> None:
    before, deciding = icl_keys(byte_model, labelled, retriever), set()
    known = ("rouge-score", "mauve-text", "faiss-cpu", "scikit-learn", "lm-eval", "bm25s", "numpy", "torch")
    for package in (*known, "sentence-transformers"):
        update(**{package.replace("-", "_"): "99.0.1"})
        after = icl_keys(byte_model, labelled, retriever)
        assert (before[0] != after[0]) == (before[1] != after[1])
        if before != after:
            deciding.add(package)
    assert deciding == packages


def test_another_version_of_a_strangers_retriever_may_find_other_shots(
    byte_model: Path, labelled: Path, stranger: Callable[..., None], update: Update
) -> None:
    stranger("1.0.0")
    first, others = icl_keys(byte_model, labelled, "last"), icl_keys(byte_model, labelled)
    assert RETRIEVERS.load("last").versions.keys() == {"acme-shots", "pluggy"}
    stranger("1.0.1")
    assert RETRIEVERS.load("last").versions["acme-shots"] == "1.0.1"
    second = icl_keys(byte_model, labelled, "last")
    assert second[0] != first[0]
    update(pluggy="99.0.1")
    assert icl_keys(byte_model, labelled, "last")[0] not in (first[0], second[0])
    assert icl_keys(byte_model, labelled) == others


def test_another_version_of_a_strangers_objective_trains_anew(
    small_model: Path, small_data: Path, stranger: Callable[..., None]
) -> None:
    def key(objective: str) -> str:
        given: dict[str, Any] = {"recipe": "lm-finetune", "seeds": (0,), "offline": True}
        settings = parse_overrides(["recipe.max_length=32", "recipe.corpus=wikitext2"])
        request = Request(
            **given, objectives=(objective,), model=str(small_model), data_dirs=(small_data,), settings=settings
        )
        (training,) = make_plan(request).trainings()
        return training.key

    stranger("1.0.0")
    names = ("flat", "0.5*flat + 0.5*mle", "mle")
    before = [key(name) for name in names]
    stranger("1.0.1")
    assert [key(name) != old for name, old in zip(names, before, strict=True)] == [True, True, False]
    assert load_objective("mle").versions == {}
    assert load_objective("flat").versions["acme-shots"] == "1.0.1"


def test_a_retriever_that_names_a_package_that_is_not_there_is_refused(stranger: Callable[..., None]) -> None:
    stranger("1.0.0", packages=("no-such-package",))
    with pytest.raises(PluginError, match="retriever 'last' needs no-such-package, which is not installed"):
        RETRIEVERS.load("last")
