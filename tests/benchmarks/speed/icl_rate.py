"""Prompts per second of the scoring engines on a LLaMA-7B-shaped random model, and their share of the GPU's arithmetic.

    python tests/benchmarks speed.icl_rate [--device cuda|cpu] [--toy] [--out FILE]

bfloat16, sdpa attention, random tokens in prompts as long as those of TREC (6 labels), AG News (4) and SST-2 (2) with 8
shots. Medians of rounds in alternating order, between CUDA events, from token lists to losses, with the comparison by
which an engine is chosen. `share_of_matrix_rate` is the FLOPs of what must be computed (layers of every token read,
attention to what it sees, the head of every token scored; no padding) over time, as a share of the measured rate of
bfloat16 matrix products.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import RESULTS, alternating_seconds, matrix_rate, median_and_spread, origin, require, write
from speed.icl_prompts import LENGTHS, random_prompts
from transformers import LlamaConfig, LlamaForCausalLM

from emobench.inference.scoring.scorer import PromptScorer, TokenCounts
from emobench.inference.scoring.trie import make_row
from emobench.kinds.icl.prompts import ExamplePrompts

LLAMA_7B = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
TOY = LLAMA_7B | {"vocab_size": 500, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TOY |= {"num_attention_heads": 4}
ENGINES = ("trie", "plain")


def model_of(shape: dict[str, int], device: str) -> Any:
    """Return a random model, made on its device: 13 GB would take a CPU minutes."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return LlamaForCausalLM(LlamaConfig(**shape)).eval()
    finally:
        torch.set_default_dtype(before)


def flops(prompts: list[ExamplePrompts], shape: dict[str, int], engine: str) -> int:
    """Return the floating-point operations that an engine cannot do without.

    Place t sees t + 1 tokens. Every engine scores a token once for all labels that have it, and reads no last token,
    which predicts nothing.
    """
    D, F, layers = (shape[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    rows = [make_row([prompt], [0]) for prompt in prompts]
    if engine == "plain":
        places = [np.arange(len(ids) - 1) for prompt in prompts for ids in prompt.tokens]
    else:
        places = [row.place_K[row.read_K] for row in rows]
    read, seen = sum(map(len, places)), sum(int((place_T + 1).sum()) for place_T in places)
    scored = sum(int((row.place_K > 0).sum()) for row in rows)
    return 2 * (layers * ((4 * D * D + 3 * D * F) * read + 2 * D * seen) + shape["vocab_size"] * D * scored)


def measure(name: str, model: Any, shape: dict[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """Return what was found for prompts as long as a task's."""
    prompts = random_prompts(name, options.examples, shape["vocab_size"])
    scorers = {engine: PromptScorer(model, engine, unscored=2) for engine in ENGINES}

    def run(engine: str, some: list[ExamplePrompts]) -> Callable[[], None]:
        def score() -> None:
            scorers[engine].counts = TokenCounts()
            for batch in scorers[engine].batches(some):
                scorers[engine].losses([some[i] for i in batch])

        return score

    for engine in ENGINES:  # loads kernels and fills the allocator
        run(engine, prompts[: max(1, len(prompts) // 4)])()
    runs = {engine: run(engine, prompts) for engine in ENGINES}
    seconds = alternating_seconds(runs, options.device, rounds=options.rounds)
    rows: dict[str, Any] = {}
    for engine in ENGINES:
        row = rows[engine] = median_and_spread(seconds[engine])
        row["examples_per_second"] = len(prompts) / row["seconds"]
        row["prompts_per_second"] = row["examples_per_second"] * LENGTHS[name][0]
        row["flops"] = flops(prompts, shape, engine)
        row["padding"] = round(1 - scorers[engine].counts.tokens / scorers[engine].counts.slots, 4)
    return {
        "shape": {"task": name, "labels": LENGTHS[name][0], "examples": len(prompts)}
        | {"vocabulary": shape["vocab_size"], "width": shape["hidden_size"]},
        "rounds": options.rounds,
        "variants": rows,
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--toy", action="store_true", help="a small model and few prompts, to see that it runs")
    parser.add_argument("--examples", type=int, help="of each task; default: 48, of the toy 6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="default: results/icl_rate-DEVICE.json beside this")
    options = parser.parse_args(argv)
    options.examples = options.examples or (6 if options.toy else 48)
    require(options.device)
    shape = TOY if options.toy else LLAMA_7B
    model = model_of(shape, options.device)
    rate = matrix_rate() if options.device == "cuda" else None
    found: dict[str, Any] = {**origin(__file__, argv, options.device), "matrix_flops_per_second": rate, "shapes": []}
    for name in LENGTHS:
        one = measure(name, model, shape, options)
        print(f"\n{one['shape']}", flush=True)
        for engine, row in one["variants"].items():
            row["share_of_matrix_rate"] = rate and row["flops"] / row["seconds"] / rate
            share = "" if rate is None else f"{row['share_of_matrix_rate']:8.1%} of the matrix rate"
            print(f"  {engine:8}{row['prompts_per_second']:10.1f} prompts/s{row['spread']:8.1%}{share}", flush=True)
        found["shapes"].append(one)
        write(found, options.out or RESULTS / "speed" / f"icl_rate-{options.device}.json")


if __name__ == "__main__":
    main(sys.argv[1:])
