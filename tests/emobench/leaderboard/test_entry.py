"""The entry refuses what the schema forbids, and its id is the documented hash."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, new_entry, read_entry

ACCURACY = {
    "mean": 0.952,
    "std": 0.001,
    "values": [0.951, 0.952, 0.953],
    "n": 1821,
    "ci95": [0.941, 0.962],
    "ci95_of": "seeds and items",
    "higher_is_better": True,
    "unit": "fraction",
    "flags": [],
}


def fields(**changes: Any) -> dict[str, Any]:
    """Return all fields of the entry that the design shows, but `schema` and `id`."""
    given = {
        "kind": "measured",
        "supersedes": None,
        "suite": {"name": "nlu", "version": 1},
        "protocols": {"sst2": "paper@3fa9c1", "mmlu": "paper@77aa00"},
        "model": {"name": "llama-7b", "source": "huggyllama/llama-7b", "revision": "abc", "parameters": 6738415616},
        "objective": {"name": "tailr", "version": "1", "params": {"gamma": 0.2}, "source_sha256": "0" * 64},
        "recipe": {"name": "lora", "epochs": 1, "lora": {"rank": 32}, "warmup": 0.03},
        "seeds": [0, 1, 2],
        "metrics": {"sst2/accuracy": ACCURACY},
        "missing": {"mmlu/accuracy": "hendrycks_test is not at hand"},
        "runs": [
            {"seed": 0, "key": "k0", "examples": {"path": "k0/examples.jsonl", "sha256": "ff" * 32}},
            {"seed": 1, "key": "k1"},
            {"seed": 2, "key": "k2", "examples": None},
        ],
        "cost": {"train_seconds": 10, "evaluate_seconds": 2.5, "tokens": 1000, "peak_memory_bytes": None},
        "source": {"command": "emobench run", "cite": None},
        "provenance": {
            "commit": "c0ffee",
            "packages": {"torch": "2.13.0"},
            "hardware": "2 cores",
            "data": {"sst2": "sha256:aa (local)"},
            "created": "2026-01-31T12:00:00+00:00",
        },
    }
    return {**copy.deepcopy(given), **changes}


def metric(**changes: Any) -> dict[str, Any]:
    return fields(metrics={"sst2/accuracy": {**ACCURACY, **changes}})


def other(unit: str, value: float) -> dict[str, Any]:
    return metric(unit=unit, mean=value, values=[value] * 3, ci95=None, ci95_of=None)


def test_the_id_is_the_hash_of_the_canonical_json_without_id() -> None:
    plain = to_plain(new_entry(fields()))
    without = {key: value for key, value in plain.items() if key != "id"}
    text = json.dumps(without, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert plain["id"] == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert new_entry(fields(kind="measured")).id == plain["id"]
    assert new_entry(fields(supersedes="0123456789ab")).id != plain["id"]


def test_an_entry_survives_json() -> None:
    entry = new_entry(fields())
    assert read_entry(json.loads(json.dumps(to_plain(entry))), "file") == entry
    assert entry.objective.label == "tailr(gamma=0.2)"
    assert entry.metrics["sst2/accuracy"].values == (0.951, 0.952, 0.953)
    new_entry(metric(unit="perplexity", mean=1.7e308, values=[1.7e308] * 3, ci95=None, ci95_of=None))  # no overflow


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (metric(ci95=[0.9, 1.01]), r"`ci95\[1\]` is 1.01, no fraction"),
        (metric(mean=math.nan), "`mean` is nan; a score that could not be computed is missing"),
        (metric(values=[0.951, math.inf, 0.953]), r"`values\[1\]` is inf"),
        (metric(mean=0.5), "`mean` is 0.5, of its values 0.952"),
        (metric(ci95=[0.96, 0.94]), "lower bound first"),
        (metric(ci95_of=None), "come together"),
        (metric(std=None), "`std` is a number from two values on"),
        (metric(std=-0.1), "expected 0 or more"),
        (metric(values=[0.951, 0.953]), "'sst2/accuracy' has 2 values; expected one for each seed"),
        (fields(missing={"sst2/accuracy": "gone"}), "'sst2/accuracy' is both measured and missing"),
        (fields(missing={"mmlu/accuracy": " "}), "without a reason"),
        (fields(protocols={"mmlu": "x"}), "`protocols` has no 'sst2'"),
        (fields(kind="published"), "names where it was taken from"),
        (fields(seeds=[0, 0, 1]), "expected each seed once"),
        (fields(seeds=[0, 2, 1]), r"`runs` has the seeds \[0, 1, 2\]; expected \[0, 2, 1\]"),
        (fields(seeds=[], metrics={}), "a trained model has at least one"),
        (fields(recipe={"lr": [1.0, math.nan]}), r"`recipe.lr\[1\]` is nan"),
        (fields(cost={"train_seconds": math.inf}), "`train_seconds` is inf"),
        (fields(provenance={**fields()["provenance"], "created": "today"}), "`created` is 'today'"),
        (fields(provenance={**fields()["provenance"], "created": "1403-08-01T00:00:00"}), "a year from 2000 to 2099"),
        (metric(std=0.8), "`std` is 0.8; numbers in \\[0, 1\\] spread by 0.7072 at most"),
        (other("perplexity", 0.5), "`mean` is 0.5, no perplexity; expected numbers in"),
    ],
)
def test_a_wrong_entry_gets_a_sentence(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        new_entry(given)


def test_unknown_and_missing_keys_stop() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'metrics'"):
        new_entry({**fields(), "metrix": {}})
    with pytest.raises(ConfigError, match="`recipe` is missing"):
        new_entry({key: value for key, value in fields().items() if key != "recipe"})


@pytest.mark.parametrize("bad", ["a\0b", "n" * 5000, "a\ud800b"])
@pytest.mark.parametrize("place", ["objective", "model", "metric", "protocol", "key"])
def test_names_that_no_reader_can_use_are_refused(bad: str, place: str, entry_of: Callable[..., Entry]) -> None:
    metric = {"mean": 0.5, "std": None, "values": [0.5], "n": 2, "higher_is_better": True, "ci95": None}
    metric |= {"ci95_of": None, "unit": "fraction"}
    changes: dict[str, Any] = {
        "objective": {"objective": {"name": bad, "version": "1", "params": {}}},
        "model": {"model": {"name": bad, "source": "tiny"}},
        "metric": {"metrics": {f"sst2/{bad}": metric}},
        "protocol": {"protocols": {"sst2": bad}},
        "key": {"runs": [{"seed": 0, "key": bad}]},
    }[place]
    with pytest.raises(ConfigError):
        entry_of("emo", **changes)


@pytest.mark.parametrize(("character", "named"), [("\0", "NUL"), ("\ud800", "ud800"), ("\udcff", "udcff")])
@pytest.mark.parametrize("field", ["recipe", "missing", "source", "provenance", "changes", "params"])
def test_no_text_has_a_character_that_no_file_may_have(
    character: str, named: str, field: str, entry_of: Callable[..., Entry], fields: dict[str, Any]
) -> None:
    changes: dict[str, Any] = {
        "recipe": {"recipe": {"name": "lm", "mask_until": character}},
        "missing": {"missing": {"sst2/accuracy": character}},
        "source": {"source": {"command": f"emobench {character}"}},
        "provenance": {"provenance": {**fields["provenance"], "packages": {f"torch{character}": "2"}}},
        "changes": {"changes": {"sst2": {"template": [character]}}},
        "params": {"objective": {"name": "emo", "version": "1", "params": {"cost": character}}},
    }[field]
    with pytest.raises(ConfigError, match=named):
        entry_of("emo", **changes)


@pytest.mark.parametrize("path", ["x" * 300, f"a/{'x' * 300}/b", "/".join(["a"] * 2000), "a/\u00e9" + "\u00e9" * 150])
def test_a_file_that_no_file_system_has_is_refused(path: str, entry_of: Callable[..., Entry]) -> None:
    file = {"path": path, "sha256": "0" * 64}
    with pytest.raises(ConfigError, match="path"):
        entry_of("emo", runs=[{"seed": 0, "key": "k", "examples": file}])


@pytest.mark.parametrize("schema", [6, 4, 0, True, 5.0, "5", None, [1] * 99])
def test_an_entry_of_another_schema_is_refused(fields: dict[str, Any], schema: Any) -> None:
    plain = to_plain(new_entry(fields))
    with pytest.raises(ConfigError, match=r"^file: .*`schema` is .*5"):
        read_entry({**plain, "schema": schema}, "file")
    with pytest.raises(ConfigError, match="has no mapping"):
        read_entry([1], "file")


TUNING = {
    "asked": {"objective.gamma": "0..1"},
    "space": {"objective.gamma": "0..1"},
    "sampler": "random",
    "seeds": [1_000_000],
    "metric": "accuracy",
    "unit": "fraction",
    "higher_is_better": True,
    "validation": {"sst2": "paper@3fa9c1"},
    "trials": [
        {"settings": {"objective.gamma": 0.2}, "value": 0.9, "half_width": 0.1},
        {"settings": {"objective.gamma": 0.4}, "value": None, "missing": "it diverged"},
        {"settings": {"objective.gamma": 0.8}, "value": 0.5},
    ],
    "chosen": 0,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"chosen": 1},
        {"chosen": 2},
        {"chosen": 3},
        {"chosen": -3},
        {"higher_is_better": False},
        {"seeds": []},
        {"trials": []},
        {"trials": 400 * TUNING["trials"]},
        {"trials": [{"settings": {}, "value": 0.9}]},
        {"trials": [{"settings": {"objective.gamma": 0.2}, "value": 50.0}]},
        {"trials": [{"settings": {"objective.gamma": 0.2}, "value": None}]},
        {"trials": [{"settings": {"objective.gamma": 0.2}, "value": 0.9, "half_width": -0.1}]},
    ],
)
def test_a_search_that_cannot_have_been_is_refused(changes: dict[str, Any]) -> None:
    assert new_entry({**fields(), "tuning": TUNING}).tuning is not None
    with pytest.raises(ConfigError):
        new_entry({**fields(), "tuning": {**TUNING, **changes}})


def test_equal_searches_are_one_condition_in_any_order_but_of_a_grid() -> None:
    def condition(sampler: str, *names: str) -> str:
        asked = dict.fromkeys(names, "0..1")
        return str(new_entry({**fields(), "tuning": {**TUNING, "asked": asked, "sampler": sampler}}).tuning)

    assert condition("random", "a", "b") == condition("random", "b", "a")
    assert condition("grid", "a", "b") != condition("grid", "b", "a")
