"""CPU time of scoring prompts with shots: our engines against OpenICL and lm-eval, on the same prompts.

    python tests/benchmarks speed.icl_scoring --data-dir FOLDER [--rounds 3] [--only ARM ...] [--out FILE]

FOLDER holds {trec,ag_news,sst2}.{train,test}.jsonl. A random GPT-2 of width 256 with 4 layers and 50,257 tokens, the
paper's prompts with 8 shots drawn from the pool. One thread of one process, arms in an order that is reversed at each
round, medians of process time, from texts to losses: each arm tokenizes. Arms:

    openicl   PPLInferencer.inference, batch size 8, its shots given
    lm-eval   HFLM.loglikelihood(prompt up to the label, label to the end), batch size 8
    plain, trie   our engines, each compared with `plain` once: `comparison_seconds` of the time of `trie`

OpenICL and lm-eval must be installed; `targets.py` holds what must be reached.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import logging
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, alternating_seconds, median_and_spread, origin, seconds_of, write
from speed.icl_prompts import Problem, problems, tokenizer_of
from speed.targets import ICL_SCORING, verdicts
from transformers import GPT2Config, GPT2LMHeadModel

from emobench.inference.scoring.scorer import Losses, PromptScorer, TokenCounts
from emobench.models.inference import optimize_for_inference

sys.path.insert(0, str(Path(__file__).parents[2] / "emobench/kinds/icl"))

from openicl_peer import Peer

EXAMPLES = {"trec": 20, "ag_news": 12, "sst2": 16}
SHAPE = {"vocab_size": 50257, "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 2048}
BATCH = 8
ENGINES = ("plain", "trie")
ARMS = ("openicl", "lm-eval", *ENGINES)


class Arms:
    """Ways to score one task's prompts, and what each found the last time."""

    def __init__(self, problem: Problem, model: Any, tokenizer: Any, folder: Path) -> None:
        self.problem = problem
        self.tokenizer = tokenizer
        self.peer = Peer(model, tokenizer, problem.rules, problem.drafts, folder, batch=BATCH)
        own = copy.deepcopy(model)  # as `emobench run` loads it
        optimize_for_inference(own)
        self.scorers = {name: PromptScorer(own, name, unscored=tokenizer.eos_token_id) for name in ENGINES}
        self.losses: dict[str, list[Losses]] = {}
        self.label_nats: list[list[float]] = []
        self._lm = _lm_eval_model(model, tokenizer)

    def run(self, name: str) -> Callable[[], None]:
        """Return what is timed."""
        if name == "openicl":
            return self.peer.run
        return self._lm_eval if name == "lm-eval" else lambda: self._own(name)

    def comparison_seconds(self) -> float:
        """Return the seconds that `trie` takes to be compared with `plain`, and to make its batches."""
        prompts = self.problem.prompts(self.tokenizer)
        return statistics.median(seconds_of(lambda: self.scorers["trie"].batches(prompts), "cpu") for _ in range(3))

    def _own(self, name: str) -> None:
        scorer, prompts = self.scorers[name], self.problem.prompts(self.tokenizer)
        scorer.counts = TokenCounts()
        found: dict[int, Losses] = {}
        for batch in scorer.batches(prompts):
            found.update(zip(batch, scorer.losses([prompts[i] for i in batch]), strict=True))
        self.losses[name] = [found[i] for i in range(len(prompts))]

    def _lm_eval(self) -> None:
        from lm_eval.api.instance import Instance

        requests = [
            Instance("loglikelihood", {}, (text[:start], text[start:]), place)
            for draft in self.problem.drafts
            for place, (text, start) in enumerate(draft.texts(self.problem.rules))
        ]
        nats = [-found for found, _ in self._lm.loglikelihood(requests, disable_tqdm=True)]
        labels = len(self.problem.rules.ties)
        self.label_nats = [nats[i : i + labels] for i in range(0, len(nats), labels)]


def _lm_eval_model(model: Any, tokenizer: Any) -> Any:
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it advises against a model that is loaded already
    return HFLM(pretrained=model, tokenizer=tokenizer, batch_size=BATCH)


def measure(arms: Arms, names: list[str], rounds: int) -> dict[str, Any]:
    """Return what was found for one task."""
    problem = arms.problem
    seconds = alternating_seconds({name: arms.run(name) for name in names}, "cpu", rounds=rounds)
    prompts, counts = problem.prompts(arms.tokenizer), arms.scorers["trie"].counts
    found = {
        "shape": {"task": problem.name, "labels": len(problem.rules.ties), "examples": len(prompts)}
        | {"vocabulary": SHAPE["vocab_size"], "width": SHAPE["n_embd"]},
        "mean_prefix_tokens": round(statistics.fmean(prompt.shared for prompt in prompts), 1),
        "mean_label_tokens": round(
            statistics.fmean(len(ids) - prompt.shared for prompt in prompts for ids in prompt.tokens), 2
        ),
        "full_over_trie_tokens": round(sum(len(i) for p in prompts for i in p.tokens) / sum(map(exact, prompts)), 3),
        "rounds": rounds,
        "comparison_seconds": arms.comparison_seconds(),
        "variants": {name: median_and_spread(times) for name, times in seconds.items()},
    }
    if "trie" in names:
        found["counted"] = {"tokens": counts.tokens, "tokens_exact": sum(map(exact, prompts))}
        found["padding"] = round(1 - counts.tokens / counts.slots, 4)
    return found | agreement(arms, names)


def exact(prompt: Any) -> int:
    """Return shared prefix plus the sum of (label's tokens - 1)."""
    return prompt.shared + sum(len(ids) - prompt.shared - 1 for ids in prompt.tokens if len(ids) > prompt.shared)


def agreement(arms: Arms, names: list[str]) -> dict[str, Any]:
    """Return how far the peers' numbers are from those of `trie`, and how many answers are the same."""
    found: dict[str, Any] = {}
    own = arms.losses.get("trie")
    if own is not None and "openicl" in names:
        rows = arms.peer.results()
        means = [[a / b for a, b in zip(one.prompt_nats, one.prompt_tokens, strict=True)] for one in own]
        theirs = [row.perplexities for row in rows]
        pairs = zip(itertools.chain(*means), itertools.chain(*theirs), strict=True)
        same = sum(arms.problem.rules.ties[m.index(min(m))] == row.answer for m, row in zip(means, rows, strict=True))
        found["openicl_agreement"] = {"largest_difference": max(abs(a - b) for a, b in pairs), "same_answers": same}
    if own is not None and "lm-eval" in names:
        spread, same = 0.0, 0
        for one, nats in zip(own, arms.label_nats, strict=True):
            gaps = [a - b for a, b in zip(one.label_nats, nats, strict=True)]
            spread = max(spread, max(gaps) - min(gaps))  # where a label begins is the same for all labels
            same += one.label_nats.index(min(one.label_nats)) == nats.index(min(nats))
        found["lm_eval_agreement"] = {"largest_difference": spread, "same_answers": same}
    return found


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with the tasks' .jsonl files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, help="of each task; default: those of the targets")
    parser.add_argument("--task", action="append", choices=tuple(EXAMPLES), help="default: all")
    parser.add_argument("--only", action="append", choices=ARMS, help="arms to run; default: all but plain")
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "icl_scoring-cpu.json")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = options.only or [name for name in ARMS if name != "plain"]
    tasks = problems({name: options.examples or EXAMPLES[name] for name in options.task or EXAMPLES}, options.data_dir)
    tokenizer = tokenizer_of([text for task in tasks for text in task.pool], SHAPE["vocab_size"])
    model = GPT2LMHeadModel(GPT2Config(**SHAPE, bos_token_id=0, eos_token_id=0)).eval()
    found: dict[str, Any] = {**origin(__file__, argv, "cpu"), "shapes": []}
    found["versions"] |= {peer: version(peer) for peer in ("openicl", "lm-eval", "tokenizers")}
    del found["not_installed"]  # of other benchmarks' peers
    for problem in tasks:
        few = replace(problem, drafts=problem.drafts[:2])
        with tempfile.TemporaryDirectory() as folder:
            warm, arms = (Arms(p, model, tokenizer, Path(folder)) for p in (few, problem))
            for name in names:  # what a first call loads is no part of it
                warm.run(name)()
            one = measure(arms, names, options.rounds)
        one["targets"] = verdicts(ICL_SCORING[problem.name], one, "cpu")
        show(one)
        found["shapes"].append(one)
        write(found, options.out)


def show(found: dict[str, Any]) -> None:
    """Print the table of one task."""
    print(f"\n{found['shape']}, prefix {found['mean_prefix_tokens']}, padding {found.get('padding', '-')}", flush=True)
    tree = found["variants"].get("trie", {}).get("seconds")
    for name, row in found["variants"].items():
        ratio = f"{row['seconds'] / tree:7.2f} x trie" if tree else ""
        print(f"  {name:10}{row['seconds']:9.2f} s{row['spread']:8.1%}{ratio}")
    for row in found["targets"]:
        print(f"  {row['row']:40}{row['value']}, must be {row['must_reach']}: {row['verdict']}", flush=True)
    print({key: value for key, value in found.items() if key.endswith("agreement")}, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
