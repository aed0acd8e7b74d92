"""The suite of the embedded default, on a model that has not been pre-trained and a little of the language."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from emobench.data.oracle.language import oracle_language

pytestmark = pytest.mark.slow

EXACT = {"forward_cross_entropy", "reverse_cross_entropy", "forward_kl", "reverse_kl", "total_variation", "entropy"}
OTHERS = {"ppl_test", "ppl_oracle", "mauve", "mauve_star", "rouge1", "rougeL"}


@pytest.fixture(scope="module")
def entries(command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Entries of the model as it is, of MLE and of EMO."""
    from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

    folder = tmp_path_factory.mktemp("oracle")
    write_untrained(TINY_MODELS["tiny-oracle"], folder / "model")
    done = command(
        *("run", "--model", folder / "model", "--runs", folder / "runs", "--leaderboard", folder / "board"),
        *("--objective", "pretrained", "--objective", "mle", "--objective", "emo", "--seed", 0, "--limit", 40),
        *("--set", "recipe.epochs=1", "--set", "recipe.max_tokens=8192", "--set", "recipe.learning_rate=1e-2"),
        *("--set", "mauve.seeds=[0]", "--offline", "--quiet", "--json"),
    ).ok()
    return done.json["entries"]


def values(entry: dict[str, Any]) -> dict[str, float]:
    return {name.removeprefix("oracle-language/"): metric["mean"] for name, metric in entry["metrics"].items()}


def test_every_metric_is_there(entries: list[dict[str, Any]]) -> None:
    assert [entry["objective"]["name"] for entry in entries] == ["pretrained", "mle", "emo"]
    for entry in entries:
        assert entry["missing"] == {}
        assert values(entry).keys() == EXACT | OTHERS
        assert entry["metrics"]["oracle-language/mauve"]["flags"] == ["small_n"]
        assert entry["provenance"]["data"]["oracle-target.test"].endswith("(generated: oracle-target, version 1)")
    assert entries[0]["seeds"] == []
    assert entries[1]["seeds"] == entries[2]["seeds"] == [0]


def test_the_exact_distances_obey_their_laws(entries: list[dict[str, Any]]) -> None:
    """Of any two distributions: KL = cross-entropy - entropy >= 0, and Pinsker bounds total variation by it."""
    language = [values(entry)["forward_cross_entropy"] - values(entry)["forward_kl"] for entry in entries]
    # The entropy of the language over the same test texts is the same, whichever model is compared with it.
    assert language == pytest.approx([language[0]] * 3, rel=1e-6)
    for entry in entries:
        found = values(entry)
        assert found["reverse_cross_entropy"] - found["entropy"] == pytest.approx(found["reverse_kl"], rel=1e-4)
        assert 0 < found["total_variation"] < 1
        assert found["total_variation"] <= math.sqrt(found["forward_kl"] / 2)


def test_an_untrained_model_is_almost_uniform_and_training_brings_it_closer(entries: list[dict[str, Any]]) -> None:
    untrained, mle, emo = map(values, entries)
    symbols = oracle_language("target").emission_SV.shape[1]
    assert untrained["entropy"] == pytest.approx(math.log(symbols), rel=0.01)
    assert untrained["ppl_test"] == pytest.approx(symbols, rel=0.1)
    # The test texts follow the language, so that their loss is the cross-entropy but for the sampling of 40 texts.
    assert math.log(mle["ppl_test"]) == pytest.approx(mle["forward_cross_entropy"], rel=0.03)
    for trained in (mle, emo):
        assert trained["ppl_test"] < 0.8 * untrained["ppl_test"]
        assert trained["ppl_oracle"] < untrained["ppl_oracle"]
