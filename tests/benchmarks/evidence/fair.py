"""Objectives with equal tuning: light fine-tuning of SmolLM2-135M-Instruct, five learning rates for each objective.

    python tests/benchmarks evidence.fair --data-dir DIR [--part NAME ...] [--runs DIR] [--leaderboard DIR] [--list]

One command for each corpus, and one for in-context learning: `emobench run --tune`, with the choice on validation data
and a test with three seeds. Finished stages are reused, so that it may be stopped at any time. In float32 on two cores,
a trial of a corpus takes about 3.5 minutes and a test 5.2: 2.2 hours a corpus. DIR holds <corpus>.<split>.jsonl of
WikiText-2, AG News and WebText; --labelled-dir the data sets of the part `answers`. Needs the package of SmolLM2
(`emobench models list`).
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MODEL = "smollm2-135m-instruct"
OBJECTIVES = ("mle", "emo", "dft", "eaft")
SEEDS = (0, 1, 2)
RATES = "recipe.learning_rate=1e-5..5e-4"
TRIALS = 5
SHARED = {
    "recipe.epochs": "1",
    "recipe.max_length": "64",
    "recipe.max_tokens": "8192",
    "recipe.batch": "8",
    "recipe.validation_tokens": "2048",
    "generation.sampling.samples": "1",
    "generation.prefix": "10",
    "generation.continuation": "20",
    "generation.test_blocks": "16",
    "mauve.featurizer": "pretrained",
}
CORPORA = ("wikitext2", "ag_news", "webtext")
ANSWERING = {
    "tasks": "[sst2, subj, trec]",
    "corpus": "wikitext2",
    "recipe.max_tokens": "16384",
    "recipe.batch": "4",
}
TEXTS, EXAMPLES = 1000, 200
"""Test texts of a corpus (MAUVE has no verdict with fewer), and test examples of a labelled data set."""


def command(part: str) -> list[str]:
    """Return the command of a part without its folders."""
    if part == "answers":
        words = ["--suite", "nlu", "--limit", str(EXAMPLES)]
        settings = ANSWERING
        rates = "recipe.learning_rate=1e-4..1e-2"
    else:
        words = ["--suite", "generation", "--limit", str(TEXTS)]
        settings = {**SHARED, "tasks": part}
        rates = RATES
    words += ["--model", MODEL, "--tune", rates, "--trials", str(TRIALS), "--sampler", "grid"]
    words += _repeated("--objective", OBJECTIVES)
    words += _repeated("--seed", map(str, SEEDS))
    words += _repeated("--set", (f"{name}={value}" for name, value in settings.items()))
    return ["emobench", "run", *words]


def _repeated(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = (*CORPORA, "answers")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--part", action="append", choices=parts)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--leaderboard", default="leaderboards/studies/fair")
    parser.add_argument("--labelled-dir", help="The folder of the part `answers`, if it is another one.")
    parser.add_argument("--list", action="store_true", help="Print the commands, and run none.")
    given = parser.parse_args()
    fixed = ["--runs", str(given.runs), "--leaderboard", given.leaderboard, "--offline", "--device", "cpu"]
    failed = 0
    for part in given.part or parts:
        folder = given.data_dir
        if part == "answers":
            folder = given.labelled_dir or given.data_dir
        words = [*command(part), "--data-dir", folder, *fixed]
        print(shlex.join(words), flush=True)
        if not given.list:
            failed += subprocess.run([sys.executable, "-m", *words], check=False).returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
