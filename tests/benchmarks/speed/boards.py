"""A board of any size, for tests and benchmarks: varied entries that are valid, and the same ones for the same seed.

They are written straight to their files, without `Leaderboard.append`: a board without an index, as in a clone.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from emobench.leaderboard.entry import SCHEMA_VERSION, entry_id
from emobench.tasks.families import endpoint, families

GENERATION = {"ppl_test": "perplexity", "mauve": "fraction", "rouge1": "fraction", "entropy": "nats"}
SUITES: dict[str, dict[str, dict[str, str]]] = {
    "nlu": {task: {"accuracy": "fraction"} for task in ("tweet_emotion", "tweet_irony", "sst2", "mmlu", "trec")},
    "generation": dict.fromkeys(("wikitext2", "webtext", "writing_prompts"), GENERATION),
    "oracle-language": {"oracle-language": {**GENERATION, "ppl_oracle": "perplexity", "total_variation": "fraction"}},
    "lm-quick": {"lm-quick": GENERATION},
}
PRIMARY = {"nlu": "accuracy", "generation": "mauve", "lm-quick": "mauve", "oracle-language": "total_variation"}
MODELS = ("gpt2", "gpt2-medium", "opt-125m", "opt-1.3b", "pythia-160m", "pythia-1.4b", "llama-7b", "llama-13b")
OBJECTIVES = ("mle", "emo", "tailr", "mixce", "focal", "kd-forward")
PARAMETERS = {"tailr": "gamma", "mixce": "ratio", "focal": "gamma", "kd-forward": "temperature"}
RATES = (1e-5, 2e-5, 5e-5, 1e-4)
START = datetime(2026, 1, 1, tzinfo=UTC)


def fill_board(root: Path, entries: int = 10_000, seed: int = 0) -> None:
    """Write entries of several suites, models, objectives, recipes and numbers of seeds into the folder of a board.

    One in twenty supersedes the one before, and is of the same runs with other values; one in twenty is of a model as
    it is. Their per-example results, curves and samples are named and not there, as on a board that was only cloned.
    """
    for plain in made_entries(entries, seed):
        folder = root / f"{plain['suite']['name']}-v{plain['suite']['version']}"
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
        (folder / f"{plain['id']}.json").write_text(text, encoding="utf-8")


def made_entries(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield plain entries, oldest first."""
    rng, last = random.Random(seed), None
    for number in range(count):
        if last is not None and number % 20 == 7:
            fields = {**last, "supersedes": last["id"], "metrics": _metrics(rng, last["suite"]["name"], last["seeds"])}
        else:
            fields = _fields(rng, number, untrained=number % 20 == 11)
        known = [*fields["metrics"], *fields["missing"]]
        fields["families"] = families(fields["metrics"], fields["missing"])
        fields["primary"] = endpoint(PRIMARY[fields["suite"]["name"]], known)
        fields["provenance"] = {**fields["provenance"], "created": _time(number)}
        last = {**fields, "id": entry_id(fields)}
        yield last


def _fields(rng: random.Random, number: int, *, untrained: bool) -> dict[str, Any]:
    suite, model = rng.choice(list(SUITES)), rng.choice(MODELS)
    name = "pretrained" if untrained else rng.choice(OBJECTIVES)
    params = {PARAMETERS[name]: round(rng.random(), 2)} if name in PARAMETERS else {}
    seeds = [] if untrained else list(range(rng.choice((1, 3, 3, 5))))
    recipe = {"name": "lm-finetune", "corpus": "wikitext2", "epochs": 3.0, "batch": 64, "max_length": 256}
    recipe |= {"learning_rate": rng.choice(RATES), "schedule": "linear", "lora": {"rank": 16, "alpha": 32}}
    tasks = [f"{task}.test" for task in SUITES[suite]]
    data = tasks if untrained else ["wikitext2.train", "wikitext2.validation", *tasks]
    return {
        "schema": SCHEMA_VERSION,
        "kind": "measured",
        "supersedes": None,
        "suite": {"name": suite, "version": 1},
        "protocols": {task: f"paper@{_digest(task)[:6]}" for task in SUITES[suite]},
        "changes": {},
        "model": {
            "name": model,
            "source": f"org/{model}",
            "revision": _digest(model)[:40],
            "parameters": None,
            "pretraining": None,
        },
        "objective": {"name": name, "version": "1", "params": params, "source_sha256": _digest(name)},
        "recipe": {"dtype": "float32"} if untrained else {**recipe, "dtype": "float32"},
        "seeds": seeds,
        "metrics": _metrics(rng, suite, seeds),
        "missing": {f"{next(iter(SUITES[suite]))}/rougeL": "rouge-score is not installed"},
        "runs": [_run(number, seed) for seed in seeds or [None]],
        "cost": {
            "train_seconds": None if untrained else rng.uniform(1e2, 1e5),
            "evaluate_seconds": rng.uniform(1e2, 1e4),
            "tokens": None if untrained else rng.randrange(10**6, 10**9),
            "peak_memory_bytes": None,
        },
        "source": {"command": f"emobench run --objective {name} --model {model} --suite {suite}", "cite": None},
        "provenance": {
            "commit": _digest("commit")[:40],
            "packages": {"emobench": "0.1.0", "python": "3.12.1", "torch": "2.11.0", "transformers": "5.17.0"},
            "hardware": "x86_64, 2 cores",
            "data": {part: f"sha256:{_digest(part)} (hub)" for part in data},
        },
    }


def _metrics(rng: random.Random, suite: str, seeds: list[int]) -> dict[str, Any]:
    return {
        f"{task}/{metric}": _metric(rng, unit, max(len(seeds), 1), metric)
        for task, metrics in SUITES[suite].items()
        for metric, unit in metrics.items()
    }


def _metric(rng: random.Random, unit: str, count: int, name: str) -> dict[str, Any]:
    middle = rng.uniform(0.2, 0.9) * (1 if unit == "fraction" else 40)
    values = [middle * rng.uniform(0.97, 1.03) for _ in range(count)]
    mean = statistics.fmean(values)
    return {
        "mean": mean,
        "std": statistics.stdev(values) if count > 1 else None,
        "values": values,
        "n": 1000,
        "ci95": [mean * 0.96, mean * 1.04],
        "ci95_of": "seeds and items" if count > 1 else "items",
        "higher_is_better": not (name.startswith("ppl") or name == "total_variation"),
        "unit": unit,
        "flags": [],
        "ci95_missing": None,
        "units": 500,
        "components": _components(mean) if name == "mauve" and count > 1 else {},
    }


def _components(mean: float) -> dict[str, Any]:
    draws = {"training seed": 3, "sampling": 5, "k-means": 5, "texts": 1000}
    return {source: {"sd": mean * 0.02, "sd_of_mean": mean * 0.01, "draws": of} for source, of in draws.items()}


def _run(number: int, seed: int | None) -> dict[str, Any]:
    key = _digest(f"{number} {seed}")[:16]
    curves = [] if seed is None else [f"train/{key}/log.jsonl"]
    return {
        "seed": seed,
        "key": key,
        "examples": _file(f"examples/{key}/examples.jsonl"),
        "curves": [_file(path) for path in curves],
        "samples": [_file(f"generate/{key}/samples.jsonl")],
    }


def _file(path: str) -> dict[str, str]:
    return {"path": path, "sha256": _digest(path)}


def _time(number: int) -> str:
    return (START + timedelta(minutes=number)).isoformat(timespec="seconds")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
