"""The answers of real models to five data sets, by emobench and by OpenICL itself.

    python tests/benchmarks evidence.openicl_answers --data-dir DIR [--examples 20] [--runs DIR] [--out FILE]

Eight shots found by all-mpnet-base-v2, the protocol `official-code`. OpenICL finds the shots and scores by itself
(`icl.engine=openicl`). Compared for each example: the shots, the loss of every label's prompt by token, as OpenICL
prints it, and the answer. DIR holds <task>.{train,test}.jsonl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

from emobench.kinds.icl.losses import ExampleLosses, read_samples

MODELS = ("smollm2-135m-instruct", "gemma-3-270m")
TASKS = ("sst2", "subj", "trec", "rotten_tomatoes", "ag_news")
ENGINES = ("auto", "openicl")


def losses(model: str, task: str, engine: str, given: argparse.Namespace) -> list[ExampleLosses]:
    """Return the losses of each example's prompts; finished stages are reused."""
    runs = given.runs / engine
    settings = {"tasks": task, "protocol": "official-code", "icl.engine": engine}
    command = ["run", "--suite", "nlu", "--model", model, "--objective", "pretrained", "--limit", given.examples]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    places = ["--data-dir", given.data_dir, "--runs", runs, "--leaderboard", runs / "board", "--offline", "--json"]
    words = [sys.executable, "-m", "emobench", *map(str, command), *map(str, places), "--device", "cpu"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    (entry,) = json.loads(done.stdout)["entries"]
    (file,) = entry["runs"][0]["samples"]
    return sorted(read_samples(runs / file["path"]), key=lambda one: one.id)


def perplexities(one: ExampleLosses) -> list[float]:
    """Return OpenICL's "PPL" of each label: the loss by token."""
    return [nats / tokens for nats, tokens in zip(one.prompt_nats, one.prompt_tokens, strict=True)]


def compared(model: str, task: str, given: argparse.Namespace) -> dict[str, Any]:
    ours, theirs = (losses(model, task, engine, given) for engine in ENGINES)
    pairs = [(perplexities(one), perplexities(other)) for one, other in zip(ours, theirs, strict=True)]
    same = [one.index(min(one)) == other.index(min(other)) for one, other in pairs]
    return {
        "examples": len(pairs),
        "labels": len(pairs[0][0]),
        "same_shots": sum(one.shots == other.shots for one, other in zip(ours, theirs, strict=True)),
        "same_answers": sum(same),
        "largest_difference": max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True)),
        "smallest_margin": min(sorted(other)[1] - min(other) for _, other in pairs),
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=Path("runs-openicl"))
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "openicl_answers-cpu.json")
    given = parser.parse_args(argv)
    found = {model: {task: compared(model, task, given) for task in TASKS} for model in MODELS}
    write({**origin(__file__, argv, "cpu"), "models": found}, given.out)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
