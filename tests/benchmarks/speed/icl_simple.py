"""CPU time of scoring prompts with shots: `trie` against what a good engineer writes in an afternoon.

    python tests/benchmarks speed.icl_simple --data-dir FOLDER [--case NAME ...] [--model NAME ...] [--rounds 5]

Each peer is a loop over transformers' own forward passes, in the fewest lines: prompts sorted by length, batches of 8,
the keys and values of what prompts share kept, the head only where something is scored. Cases:

    trec, sst2                 loss of the whole prompt; each example's prefix once, labels behind its keys and values
    trec-labels, sst2-labels   loss of the label's own tokens; the same, and no head on the prefix
    mmlu                       loss of the whole prompt; 5 fixed shots, their keys and values once for a subject
    mmlu-labels                loss of the label's token alone

Models: shallow (GPT-2 of width 256, 4 layers, 50,257 tokens: the head dominates), deep (width 384, 12 layers, 8,192
tokens: the body does), and any name of `emobench models list`. Prompts are tokenized before. FOLDER holds
<task>.{train,test}.jsonl and mmlu_stem.{dev,test}.jsonl. Arms alternate; medians of process time, one thread.

The result has each case's arithmetic: the FLOPs of products with weights in each arm, over the least that there can be,
where the body reads each node of the trie of all prompts once, and the head each node from which something is scored.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from flops import FLOP_FORMULAS
from measuring import RESULTS, alternating_seconds, median_and_spread, origin, over, write
from speed.icl_prompts import CONTEXT, problems, tokenizer_of
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from emobench.inference.scoring.scorer import PromptScorer, TokenCounts
from emobench.kinds.icl.prompts import ExamplePrompts
from emobench.models.inference import optimize_for_inference

BATCH = 8
SHAPES = {
    "shallow": {"vocab_size": 50257, "n_embd": 256, "n_layer": 4, "n_head": 4},
    "deep": {"vocab_size": 8192, "n_embd": 384, "n_layer": 12, "n_head": 6},
}
EXAMPLES = {"trec": 24, "sst2": 24}
SUBJECTS, QUESTIONS = 2, 24
SHOTS = 5
LETTERS = "ABCD"


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    ids_BT = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
    mask_BT = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids_BT, mask_BT


def right_padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    width = max(1, *map(len, rows))
    ids_BT = torch.tensor([list(row) + [0] * (width - len(row)) for row in rows])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return ids_BT, mask_BT


def nats(model: Any, hidden_BTD: Tensor, target_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return each row's sum of -log q over the slots of the mask; the head runs on these alone."""
    chosen = mask_BT.bool()
    loss_N = F.cross_entropy(model.lm_head(hidden_BTD[chosen]).float(), target_BT[chosen], reduction="none")
    return torch.zeros(mask_BT.shape).masked_scatter(chosen, loss_N).sum(1)


@torch.no_grad()
def kv_loop(
    model: Any, prompts: Sequence[ExamplePrompts], labels_only: bool, kept: DynamicCache | None = None, skip: int = 0
) -> list[list[float]]:
    """Score prompts by length, 8 at a time: the shared prefix once, then each label behind its keys and values.

    The first `skip` tokens are in `kept`, and are not scored here.
    """
    body = model.base_model
    found: dict[int, list[float]] = {}
    order = sorted(range(len(prompts)), key=lambda i: -prompts[i].shared)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        ids_BP, mask_BP = left_padded([prompts[i].tokens[0][skip : prompts[i].shared] for i in batch])
        places_BP = (mask_BP.cumsum(1) - 1).clamp_min(0) + skip
        seen_BP = mask_BP
        cache = DynamicCache()
        if kept is not None:
            cache = DynamicCache(
                [tuple(kv.expand(len(batch), -1, -1, -1) for kv in (one.keys, one.values)) for one in kept.layers]
            )
            seen_BP = torch.cat([torch.ones(len(batch), skip, dtype=torch.long), mask_BP], 1)
        hidden_BPD = body(
            input_ids=ids_BP, attention_mask=seen_BP, position_ids=places_BP, past_key_values=cache, use_cache=True
        )[0]
        prefix_B = torch.zeros(len(batch))
        if not labels_only:
            prefix_B = nats(model, hidden_BPD[:, :-1], ids_BP[:, 1:], mask_BP[:, :-1] & mask_BP[:, 1:])
        columns = []
        for label in range(len(prompts[0].tokens)):
            behind = [prompts[i].tokens[label][prompts[i].shared :] for i in batch]
            target_BS, inside_BS = right_padded(behind)
            hidden_BSD = hidden_BPD[:, -1:]
            if target_BS.shape[1] > 1:
                places_BS = places_BP[:, -1:] + 1 + torch.arange(target_BS.shape[1] - 1)
                more_BSD = body(
                    input_ids=target_BS[:, :-1],
                    attention_mask=torch.cat([seen_BP, inside_BS[:, :-1]], 1),
                    position_ids=places_BS,
                    past_key_values=cache,
                    use_cache=True,
                )[0]
                cache.crop(1 - target_BS.shape[1])
                hidden_BSD = torch.cat([hidden_BSD, more_BSD], 1)
            columns.append((prefix_B + nats(model, hidden_BSD, target_BS, inside_BS)).tolist())
        found.update(zip(batch, map(list, zip(*columns, strict=True)), strict=True))
    return [found[i] for i in range(len(prompts))]


@torch.no_grad()
def fixed_shots_loop(
    model: Any, prompts: Sequence[ExamplePrompts], labels_only: bool, shots: dict[str, int]
) -> list[list[float]]:
    """Score subject by subject: the keys and values of the shots once, then `kv_loop` behind them."""
    found: dict[str, list[float]] = {}
    for subject, count in shots.items():
        own = [prompt for prompt in prompts if prompt.id.startswith(subject)]
        ids_1T = torch.tensor([own[0].tokens[0][:count]])
        read = model.base_model(input_ids=ids_1T, use_cache=True)
        start = 0.0
        if not labels_only:
            logits_TV = model.lm_head(read[0][0, :-1]).float()
            start = float(F.cross_entropy(logits_TV, ids_1T[0, 1:], reduction="sum"))
        behind = kv_loop(model, own, labels_only, read.past_key_values, count)
        if not labels_only:  # the first token behind the shots is predicted by their last
            firsts = torch.tensor([prompt.tokens[0][count] for prompt in own])
            log_prob_V = model.lm_head(read[0][0, -1]).float().log_softmax(-1)
            behind = [
                [start - float(log_prob_V[first]) + value for value in row]
                for first, row in zip(firsts, behind, strict=True)
            ]
        found |= {prompt.id: row for prompt, row in zip(own, behind, strict=True)}
    return [found[prompt.id] for prompt in prompts]


def mmlu_prompts(data: Path, tokenizer: Any) -> tuple[list[ExamplePrompts], dict[str, int]]:
    """Return the first questions of the first subjects behind 5 shots, and each subject's tokens of shots."""
    shown, asked = (
        [json.loads(line) for line in (data / f"mmlu_stem.{split}.jsonl").read_text().splitlines()]
        for split in ("dev", "test")
    )

    def text(row: dict[str, Any]) -> str:
        choices = "".join(f"\n{letter}. {choice}" for letter, choice in zip(LETTERS, row["choices"], strict=True))
        return f"{row['question']}{choices}\nAnswer:"

    prompts, shots = [], {}
    for subject in list(dict.fromkeys(row["subject"] for row in asked))[:SUBJECTS]:
        given = [row for row in shown if row["subject"] == subject][:SHOTS]
        start = "".join(f"{text(row)} {LETTERS[row['answer']]}\n\n" for row in given)
        start_ids = tokenizer(start)["input_ids"]
        shots[subject] = len(start_ids)
        for number, row in enumerate(itertools.islice((row for row in asked if row["subject"] == subject), QUESTIONS)):
            ids = [*start_ids, *tokenizer(text(row), add_special_tokens=False)["input_ids"]]
            tokens = tuple(
                (*ids, *tokenizer(f" {letter}", add_special_tokens=False)["input_ids"]) for letter in LETTERS
            )
            starts = (len(ids),) * len(LETTERS)
            prompts.append(ExamplePrompts(id=f"{subject} {number}", tokens=tokens, label_starts=starts, shots=()))
    random.Random(0).shuffle(prompts)
    return prompts, shots


def model_and_tokenizer(name: str, texts: Sequence[str]) -> tuple[Any, Any]:
    if name in SHAPES:
        shape = SHAPES[name]
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(**shape, n_positions=CONTEXT, bos_token_id=0, eos_token_id=0))
        return model.eval(), tokenizer_of(texts, shape["vocab_size"])
    from emobench.models.device import LoadOptions
    from emobench.models.model import Model

    loaded = Model(name, LoadOptions(offline=True)).load()
    return loaded.model.eval(), loaded.tokenizer


def measure(case: str, model: Any, prompts: list[ExamplePrompts], shots: dict[str, int], rounds: int) -> dict[str, Any]:
    labels_only = case.endswith("-labels")
    results: dict[str, list[list[float]]] = {}
    own = copy.deepcopy(model)  # as `emobench run` loads it
    optimize_for_inference(own)
    scorer = PromptScorer(own, "trie", labels_only=labels_only)

    def ours() -> None:
        scorer.counts, scorer._kept = TokenCounts(), None
        found: dict[int, list[float]] = {}
        for batch in scorer.batches(prompts):
            losses = scorer.losses([prompts[i] for i in batch])
            values = [list(one.label_nats if labels_only else one.prompt_nats) for one in losses]
            found.update(zip(batch, values, strict=True))
        results["ours"] = [found[i] for i in range(len(prompts))]

    def peer() -> None:
        if shots:
            results["loop"] = fixed_shots_loop(model, prompts, labels_only, shots)
        else:
            results["loop"] = kv_loop(model, prompts, labels_only)

    arms: dict[str, Callable[[], None]] = {"ours": ours, "loop": peer}
    for arm in arms.values():
        arm()  # what is loaded, and which engine is right, is found once for a model
    least = least_flops(model, prompts, labels_only)
    flops = {name: round(product_flops(arm) / least, 4) for name, arm in arms.items()}
    seconds = alternating_seconds(arms, "cpu", rounds=rounds)
    pairs = list(zip(itertools.chain(*results["ours"]), itertools.chain(*results["loop"]), strict=True))
    return {
        "examples": len(prompts),
        "tokens_read": scorer.counts.tokens,
        "tokens_of_trie": len({ids[:n] for prompt in prompts for ids in prompt.tokens for n in range(1, len(ids))}),
        "least_flops": least,
        "flops_over_least": flops,
        "padding": round(1 - scorer.counts.tokens / scorer.counts.slots, 4),
        "variants": {name: median_and_spread(times) for name, times in seconds.items()},
        "loop_over_ours": over(seconds["loop"], seconds["ours"]),
        "largest_difference": max(abs(a - b) for a, b in pairs),
    }


def product_flops(run: Callable[[], None]) -> int:
    """Return the FLOPs of products with weights; those of attention are other operators."""
    with FlopCounterMode(display=False, custom_mapping=FLOP_FORMULAS) as counter:
        run()
    counts = counter.get_flop_counts()["Global"]
    return sum(flops for operator, flops in counts.items() if operator in {torch.ops.aten.mm, *FLOP_FORMULAS})


def least_flops(model: Any, prompts: Sequence[ExamplePrompts], labels_only: bool) -> int:
    """Return 2 FLOPs for each weight of the body and node of the trie, and for each weight of the head and source."""
    read = {ids[:n] for prompt in prompts for ids in prompt.tokens for n in range(1, len(ids))}
    sources = {
        ids[:n]
        for prompt in prompts
        for ids, start in zip(prompt.tokens, prompt.label_starts or (), strict=True)
        for n in range(start if labels_only else 1, len(ids))
    }
    matrices = [weight for weight in model.base_model.parameters() if weight.ndim == 2]
    tables = [model.get_input_embeddings().weight, *(w for n, w in model.named_parameters() if "wpe" in n)]
    body = sum(weight.numel() for weight in matrices) - sum(weight.numel() for weight in tables)
    return 2 * (body * len(read) + model.get_output_embeddings().weight.numel() * len(sources))


CASES = ("trec", "sst2", "trec-labels", "sst2-labels", "mmlu", "mmlu-labels")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--model", action="append", help="Repeatable. Default: shallow, deep, smollm2-135m-instruct.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--examples", type=int, help="of each task; default: 24")
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "icl_simple-cpu.json")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    counts = {name: given.examples or count for name, count in EXAMPLES.items()}
    tasks = {problem.name: problem for problem in problems(counts, given.data_dir)}
    texts = [text for problem in tasks.values() for text in problem.pool]
    found: dict[str, Any] = {}
    for name in given.model or (*SHAPES, "smollm2-135m-instruct"):
        model, tokenizer = model_and_tokenizer(name, texts)
        for case in given.case or CASES:
            task = case.removesuffix("-labels")
            if task == "mmlu":
                prompts, shots = mmlu_prompts(given.data_dir, tokenizer)
                prompts = prompts[: SUBJECTS * (given.examples or QUESTIONS)]
            else:
                prompts, shots = [replace(one, shots=()) for one in tasks[task].prompts(tokenizer)], {}
            row = measure(case, model, prompts, shots, given.rounds)
            found.setdefault(name, {})[case] = row
            ratio = row["loop_over_ours"]
            shown = f"{ratio['median']:6.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
            print(f"{name:24}{case:14}{shown}, FLOPs over the least: {row['flops_over_least']}", flush=True)
    write({**origin(__file__, argv, "cpu"), "models": found}, given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
