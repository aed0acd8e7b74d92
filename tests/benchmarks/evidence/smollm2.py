"""Objectives on a real pre-trained model: light fine-tuning of SmolLM2-135M-Instruct on three corpora.

    python tests/benchmarks evidence.smollm2 --data-dir DIR [--part NAME ...] [--runs DIR] [--leaderboard DIR] [--list]

Runs what is missing, one entry after another; finished stages are reused, so that it may be stopped at any time. DIR
holds <corpus>.<split>.jsonl. Needs the packages of SmolLM2, Gemma 3 270M and all-mpnet-base-v2 (`emobench models
list`). On two idle cores a training takes about 6 min and its evaluation about 10.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator

MODEL = "smollm2-135m-instruct"
TASKS = ("wikitext2", "ag_news", "webtext")
SEEDS = (0, 1, 2)
MAIN = ("mle", "emo")
"""The objectives of the main question; the others have one seed."""
OTHERS = ("emo-1-adaptive", "emo-clamped", "dft", "mixce", "tailr-official")
SETTINGS = {
    "recipe.epochs": "1",
    "recipe.max_tokens": "65536",
    "recipe.batch": "8",
    "generation.sampling.samples": "2",
    "generation.test_blocks": "150",
    "mauve.featurizer": "gemma-3-270m",
    "oracle.model": "gemma-3-270m",
    "coherence.encoder": "all-mpnet-base-v2",
}
LIMIT = 300
CHANGES: dict[str, tuple[str, ...]] = {
    "recipe.learning_rate": ("1e-5", "2e-4"),
    "recipe.max_tokens": ("16384", "262144"),
    "recipe.lora": ("true",),
    "generation.prefix": ("5", "50"),
    "mauve.featurizer": ("pretrained",),
}
"""What is varied on WikiText-2 with MLE and EMO, one setting at a time."""
WEIGHTS = ("0.5*mle + 0.1*demd", "0.5*mle + 1*demd", "0.5*mle + 4*demd")
"""Weights of the distance in place of EMO's own, which is that of each token."""


def conditions(part: str) -> Iterator[list[str]]:
    """Yield the arguments of the runs of a part."""
    if part == "main":
        for task in TASKS:
            yield [*_task(task), *_objectives("pretrained")]
            yield [*_task(task), *_objectives(*MAIN), *_seeds(SEEDS)]
    elif part == "objectives":
        for task in TASKS:
            yield from ([*_task(task), *_objectives(name), *_seeds((0,))] for name in OTHERS)
    elif part == "changes":
        for setting, values in CHANGES.items():
            yield from (
                [*_task("wikitext2", **{setting: value}), *_objectives(*MAIN), *_seeds((0,))] for value in values
            )
    elif part == "weights":
        yield from ([*_task("wikitext2"), *_objectives(name), *_seeds((0,))] for name in WEIGHTS)


PARTS = ("main", "objectives", "changes", "weights")


def _task(name: str, **changed: str) -> list[str]:
    settings = {**SETTINGS, **changed, "tasks": name}
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def _objectives(*names: str) -> list[str]:
    return [word for name in names for word in ("--objective", name)]


def _seeds(seeds: tuple[int, ...]) -> list[str]:
    return [word for seed in seeds for word in ("--seed", str(seed))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--leaderboard", default="leaderboards/measured")
    parser.add_argument("--list", action="store_true", help="Print the commands, and run none.")
    given = parser.parse_args()
    places = ["--data-dir", given.data_dir, "--runs", given.runs, "--leaderboard", given.leaderboard]
    fixed = ["--model", MODEL, "--suite", "generation", "--limit", str(LIMIT), "--offline", "--device", "cpu", *places]
    failed = 0
    for part in given.part or PARTS:
        for arguments in conditions(part):
            command = ["emobench", "run", *fixed, *arguments]
            print(shlex.join(command), flush=True)
            if not given.list:
                failed += subprocess.run([sys.executable, "-m", *command], check=False).returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
