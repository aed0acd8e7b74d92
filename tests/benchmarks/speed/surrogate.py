"""Time and peak memory of the distances to a surrogate, above the two models, at the vocabulary of GPT-2.

    python tests/benchmarks speed.surrogate [--device cpu|cuda] [--models gpt2|gpt-neo-1.3b] [--out FILE]

Random weights of the models' shapes: GPT-2 small against itself, or against GPT-Neo-1.3B, which needs 6 GB more.
Texts are as long as the task reads them, the longest 500 tokens. Peak memory is measured in a process of its own, which
loads the models, runs once on a short text, and then counts from there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, origin, peak_bytes, program, require, seconds_of, text_like_tokens, write
from speed.targets import SURROGATE, show, verdicts
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoConfig, GPTNeoForCausalLM

from emobench.metrics.distribution_distances import CHUNK_BYTES, TOKEN_BUDGET, surrogate_distances

VOCABULARY = 50257
LENGTHS = (500, 500, 420, 300, 200, 120, 60, 30)
"""Tokens of the texts: batches of padded and of full rows."""


class Tokenizer:
    """What is asked of a tokenizer: its tokens."""

    def get_vocab(self) -> dict[str, int]:
        return {f"t{i}": i for i in range(VOCABULARY)}


def models_of(name: str, device: str) -> tuple[Any, Any]:
    """Return a surrogate and a model with random weights."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY)).to(device)
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY)).to(device), model
    # GPTNeoConfig's own sizes are those of GPT-Neo-1.3B.
    return GPTNeoForCausalLM(GPTNeoConfig(vocab_size=VOCABULARY)).to(device), model


def run_of(name: str, device: str) -> Callable[[], object]:
    """Return a call of the metric, after one on a short text, in which everything is loaded."""
    surrogate, model = models_of(name, device)
    drawn = text_like_tokens((sum(LENGTHS),), VOCABULARY, torch.Generator().manual_seed(0))
    rows = [part.tolist() for part in drawn.split(LENGTHS)]
    ids = [str(i) for i in range(len(rows))]
    surrogate_distances(surrogate, model, Tokenizer(), [rows[0][:8]], ["0"])
    return lambda: surrogate_distances(surrogate, model, Tokenizer(), rows, ids)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", choices=("gpt2", "gpt-neo-1.3b"), default="gpt2")
    parser.add_argument("--out", type=Path, help="default: results/surrogate-MODELS-DEVICE.json")
    parser.add_argument("--measure", choices=("peak", "seconds"), help="print one number, and stop")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    require(options.device)
    if options.measure:
        run = run_of(options.models, options.device)
        print(peak_bytes(run, options.device) if options.measure == "peak" else seconds_of(run, options.device))
        return
    command = [*program(__file__), "--device", options.device, "--models", options.models, "--measure"]
    peak, seconds = (
        float(subprocess.run([*command, what], check=True, capture_output=True, text=True).stdout)
        for what in ("peak", "seconds")
    )
    tokens = sum(LENGTHS) - len(LENGTHS)
    found: dict[str, Any] = {
        **origin(__file__, argv, options.device),
        "models": {"model": "gpt2", "surrogate": options.models},
        "shape": {"tokens": tokens, "vocabulary": VOCABULARY, "width": 768, "dtype": "float32"},
        "chunk_bytes": CHUNK_BYTES,
        "token_budget": TOKEN_BUDGET,
        "peak_bytes": int(peak),
        # Of one batch, in float64: what is not held.
        "pair_bytes": 2 * 8 * TOKEN_BUDGET * VOCABULARY,
        "tokens_per_second": tokens / seconds,
    }
    found["targets"] = verdicts(SURROGATE, found, options.device)
    print(f"{peak / 2**20:.0f} MiB above the two models, {tokens / seconds:.0f} tokens/s")
    show(found["targets"])
    write(found, options.out or RESULTS / "speed" / f"surrogate-{options.models}-{options.device}.json")


if __name__ == "__main__":
    main(sys.argv[1:])
