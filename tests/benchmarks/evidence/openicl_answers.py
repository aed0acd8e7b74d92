"""The answers of real models to five data sets, by emobench and by OpenICL itself.

    python tests/benchmarks evidence.openicl_answers --data-dir DIR [--examples 20] [--runs DIR] [--out FILE]

Eight shots found by all-mpnet-base-v2, the protocol `official-code`. OpenICL finds the shots and scores by itself, on
the model in float32. Compared for each example: the shots, the loss of every label's prompt by token, as OpenICL
prints it, and the answer. DIR holds <task>.{train,test}.jsonl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from measuring import RESULTS, origin, write
from transformers import AutoModelForCausalLM

from emobench.data.labelled import load_labelled
from emobench.kinds.icl.answers import ExampleLosses
from emobench.kinds.icl.prompts import Draft
from emobench.kinds.icl.retrieval.shots import pool_of, questions_of
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.rows import read_rows
from emobench.models.encoder import find_encoder
from emobench.registry import find_task
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request

sys.path.insert(0, str(Path(__file__).parents[2] / "emobench/kinds/icl"))

from openicl_peer import adapted_openicl, openicl_scores, topk_retriever

MODELS = ("smollm2-135m-instruct", "gemma-3-270m")
TASKS = ("sst2", "subj", "trec", "rotten_tomatoes", "ag_news")


class Example(NamedTuple):
    """The shots of a test example, and the loss by token of each label's prompt."""

    shots: tuple[str, ...]
    losses: list[float]


def by_emobench(model: str, task: str, given: argparse.Namespace) -> dict[str, Example]:
    """Return the test examples by id; finished stages are reused."""
    settings = {"tasks": task, "protocol": "official-code"}
    command = ["run", "--suite", "nlu", "--model", model, "--objective", "pretrained", "--limit", given.examples]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    board = given.runs / "board"
    places = ["--data-dir", given.data_dir, "--runs", given.runs, "--leaderboard", board, "--offline", "--json"]
    words = [sys.executable, "-m", "emobench", *map(str, command), *map(str, places), "--device", "cpu"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    (entry,) = json.loads(done.stdout)["entries"]
    (file,) = entry["runs"][0]["samples"]
    examples = {}
    for one in read_rows(ExampleLosses, given.runs / file["path"]):
        losses = [nats / tokens for nats, tokens in zip(one.prompt_nats, one.prompt_tokens, strict=True)]
        examples[one.id] = Example(one.shots, losses)
    return examples


def by_openicl(model: str, name: str, given: argparse.Namespace) -> dict[str, Example]:
    """Return the same of OpenICL."""
    task = find_task(name, protocol="official-code", overrides={"limit": given.examples})
    rules = task.protocol_as(IclProtocol)
    assert task.dataset is not None
    data = load_labelled(task.dataset, data_dirs=[Path(given.data_dir)], offline=True)
    with adapted_openicl():
        places = topk_retriever(rules, data, find_encoder(rules.encoder, offline=True).folder).retrieve()
    pool, drafts = pool_of(rules, data), []
    for question, row in zip(questions_of(rules, data), places, strict=True):
        drafts.append(Draft(example=question, shots=tuple(pool[place] for place in row)))
    files = base_model(model, Request(suite="nlu", offline=True))
    loaded = AutoModelForCausalLM.from_pretrained(files.folder).float().eval()
    examples = {}
    for draft, scored in zip(drafts, openicl_scores(loaded, files.tokenizer, rules, drafts), strict=True):
        examples[draft.example.id] = Example(tuple(shot.id for shot in draft.shots), list(scored.perplexities))
    return examples


def compared(model: str, task: str, given: argparse.Namespace) -> dict[str, Any]:
    ours, theirs = by_emobench(model, task, given), by_openicl(model, task, given)
    assert ours.keys() == theirs.keys()
    pairs = [(one.losses, theirs[name].losses) for name, one in ours.items()]
    same = [one.index(min(one)) == other.index(min(other)) for one, other in pairs]
    return {
        "examples": len(pairs),
        "labels": len(pairs[0][0]),
        "same_shots": sum(one.shots == theirs[name].shots for name, one in ours.items()),
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
