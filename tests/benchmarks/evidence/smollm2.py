"""Objectives on real pre-trained models: light fine-tuning of SmolLM2-135M-Instruct, and in-context learning.

    python tests/benchmarks evidence.smollm2 --data-dir DIR [--part NAME ...] [--runs DIR] [--leaderboard DIR] [--list]

Runs what is missing, one entry after another; finished stages are reused, so that it may be stopped at any time. DIR
holds <corpus>.<split>.jsonl of WikiText-2, WebText and AG News. The part `answers` reads WikiText-2 and five labelled
data sets, from --labelled-dir if AG News has labels in another file. Needs the packages of SmolLM2, Gemma 3 270M and
all-mpnet-base-v2 (`emobench models list`); the part `bases` needs --small-model, a folder. On one core, a seed of the
main condition takes about half an hour, and a changed one half of that.

`--list` prints the commands, one for each entry, for those who run several at once.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch

from emobench.models.device import LoadOptions
from emobench.models.model import Model

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
    "recipe.precision": "bfloat16",
    "generation.sampling.samples": "1",
    "generation.test_blocks": "200",
    "mauve.featurizer": "gemma-3-270m",
    "oracle.model": "gemma-3-270m",
    "coherence.encoder": "all-mpnet-base-v2",
}
OWN = {
    "ag_news": {"recipe.max_tokens": "32768"},
    "webtext": {"recipe.max_tokens": "32768", "generation.prefix": "10", "generation.continuation": "30"},
}
"""What a corpus has in place of `SETTINGS` and of its protocol: the local part of WebText has 61 words a text at most,
and the protocol needs 100 tokens."""
SLOW = ("oracle.model", "coherence.encoder")
"""More than half the time of an evaluation: they are asked for in one condition, with fewer texts."""
LIMIT, FEWER = 1000, 400
"""Texts: of the main condition, and where one setting is changed. MAUVE has no verdict with fewer than 1,000."""
CHANGES: dict[str, tuple[str, ...]] = {
    "recipe.learning_rate": ("1e-5", "2e-4"),
    "generation.sampling.temperature": ("0.9", "0.8"),
    "generation.prefix": ("50",),
    "mauve.featurizer": ("pretrained",),
    "recipe.lora": ("true",),
    "recipe.max_tokens": ("16384", "131072"),
}
"""What is varied on WikiText-2 with MLE and EMO, one setting at a time."""
WEIGHTS = ("0.5*mle + 1*demd", "0.5*mle + 10*demd")
"""One weight of the distance for all tokens. EMO has one for each token, at the first step about 2.8 in the mean."""
LABELLED = "[sst2, subj, trec, rotten_tomatoes, ag_news]"
ANSWERING = {
    "recipe.max_tokens": "65536",
    "recipe.batch": "4",
    "recipe.learning_rate": "1e-3",
    "corpus": "wikitext2",
}
"""LoRA in 64 steps. With the recipe's own rate and 8 steps, one answer in 1,000 changes."""
EXAMPLES = 200


def conditions(part: str, places: Places) -> Iterator[list[str]]:
    """Yield the arguments of the runs of a part."""
    if part == "main":
        for task in TASKS:
            yield _writing(task, "pretrained")
            yield from (_writing(task, name, seeds=SEEDS) for name in MAIN)
    elif part == "objectives":
        yield from (_writing("wikitext2", name, limit=FEWER) for name in OTHERS)
    elif part == "changes":
        yield from (_writing("wikitext2", name, limit=FEWER, slow=True) for name in ("pretrained", *MAIN))
        for setting, values in CHANGES.items():
            for value, name in product(values, MAIN):
                yield _writing("wikitext2", name, limit=FEWER, **{setting: value})
        yield from (_writing("wikitext2", name, limit=100) for name in MAIN)
    elif part == "weights":
        yield from (_writing("wikitext2", name, limit=FEWER) for name in WEIGHTS)
    elif part == "costs":
        name = f"emo(cost='{centred(MODEL, places.runs)}')"
        yield _writing("wikitext2", name, limit=FEWER)
    elif part == "bases" and places.small_model:
        cost = centred(places.small_model, places.runs)
        for name in ("pretrained", *MAIN, f"emo(cost='{cost}')"):
            yield _writing("wikitext2", name, seeds=SEEDS, model=places.small_model, limit=FEWER)
    elif part == "answers":
        for model in (MODEL, "gemma-3-270m"):
            for protocol in ("paper", "official-code"):
                yield _answering(model, protocol)


PARTS = ("main", "changes", "weights", "costs", "bases", "objectives", "answers")


class Places(NamedTuple):
    """Folders that were given."""

    data: str
    runs: Path
    leaderboard: str
    small_model: str | None
    labelled: str


def centred(model: str, runs: Path) -> Path:
    """Return a folder of a model whose head has rows of mean 0: the cosines are those of the centred rows."""
    folder = runs / f"centred-{Path(model).name}"
    if not folder.is_dir():
        loaded = Model(model, LoadOptions(offline=True)).load()
        weight_VD = loaded.model.get_output_embeddings().weight
        with torch.no_grad():
            weight_VD -= weight_VD.mean(0)
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
    return folder


def _writing(
    task: str,
    objective: str,
    *,
    seeds: Iterable[int] = (0,),
    model: str = MODEL,
    limit: int = LIMIT,
    slow: bool = False,
    **changed: str,
) -> list[str]:
    settings = {key: value for key, value in SETTINGS.items() if slow or key not in SLOW}
    asked = {**settings, **OWN.get(task, {}), **changed, "tasks": task}
    untrained = objective == "pretrained"  # no recipe
    rules = _settings({k: v for k, v in asked.items() if not (untrained and k.startswith("recipe."))})
    return ["--suite", "generation", "--model", model, "--limit", str(limit), *_trained((objective,), seeds), *rules]


def _answering(model: str, protocol: str) -> list[str]:
    rules = _settings({**ANSWERING, "tasks": LABELLED, "protocol": protocol})
    trained = _trained(("pretrained", *MAIN), (0,))
    half = ["--dtype", "bfloat16"]  # 2.4 times as fast on a CPU that has it
    return ["--suite", "nlu", "--model", model, "--limit", str(EXAMPLES), *half, *trained, *rules]


def _trained(objectives: Iterable[str], seeds: Iterable[int]) -> list[str]:
    named = [word for name in objectives for word in ("--objective", name)]
    return [*named, *(word for seed in seeds for word in ("--seed", str(seed)))]


def _settings(settings: dict[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--leaderboard", default="leaderboards/studies/smollm2")
    parser.add_argument("--small-model", help="A folder of a smaller model, for the part `bases`.")
    parser.add_argument("--labelled-dir", help="The folder of the part `answers`, if it is another one.")
    parser.add_argument("--list", action="store_true", help="Print the commands, and run none.")
    given = parser.parse_args()
    places = Places(
        given.data_dir, given.runs, given.leaderboard, given.small_model, given.labelled_dir or given.data_dir
    )
    fixed = ["--runs", str(places.runs), "--leaderboard", places.leaderboard, "--offline", "--device", "cpu"]
    failed = 0
    for part in given.part or PARTS:
        data = places.labelled if part == "answers" else places.data
        for arguments in conditions(part, places):
            command = ["emobench", "run", *arguments, "--data-dir", data, *fixed]
            print(shlex.join(command), flush=True)
            if not given.list:
                failed += subprocess.run([sys.executable, "-m", *command], check=False).returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
