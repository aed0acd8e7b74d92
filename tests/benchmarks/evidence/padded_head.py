"""How PPL_test differs from plain Hugging Face where rows of a head stand for no token.

    python tests/benchmarks evidence.padded_head --model FOLDER --data-dir FOLDER [--blocks N] [--steps N] [--out FILE]

The model's head gets more rows than its tokenizer has tokens: zeros, as transformers' `resize_token_embeddings` draws
them, and those after some steps of plain training, in which they are logits as any other. transformers' own loss is
over all rows; emobench's is over the tokens, so that its perplexity is smaller by the factor exp(mean of -log(1 - m)),
where m is the probability of the padding rows at a position. DIR/wikitext2.{train,test}.jsonl are read.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, origin, write
from transformers import AutoModelForCausalLM, AutoTokenizer

from emobench.data.packing import pack_blocks
from emobench.data.texts import load_texts
from emobench.metrics.perplexity import perplexity
from emobench.metrics.token_pass import evaluate_tokens
from emobench.models.head import probe_head
from emobench.models.quiet import quiet_libraries

LENGTH, BATCH = 256, 8
ROWS = (7, 128)
"""Of OPT (50,272 for 50,265 tokens), and a multiple that GPUs like."""


def padded(model: Any, rows: int, kind: str) -> Any:
    """Return a copy of a model with so many rows more: zeros, or as transformers draws them."""
    copied = copy.deepcopy(model)
    torch.manual_seed(0)
    before = copied.get_output_embeddings().weight.shape[0]
    with quiet_libraries():
        copied.resize_token_embeddings(before + rows)
    if kind == "zeros":
        with torch.no_grad():
            copied.get_output_embeddings().weight[before:] = 0
    return copied.eval()


def trained(model: Any, blocks: torch.Tensor, steps: int) -> Any:
    """Return the model after some steps of transformers' own loss, which is over all rows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for step in range(steps):
        rows = blocks[torch.arange(step * BATCH, (step + 1) * BATCH) % len(blocks)]
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@torch.no_grad()
def compared(model: Any, tokenizer: Any, blocks: torch.Tensor) -> dict[str, float]:
    """Return the perplexity by transformers' loss and by ours, and what the padding rows' probability says of them."""
    tokens = len(tokenizer)
    nats, mass, lost = 0.0, 0.0, 0.0
    for rows in blocks.split(BATCH):
        out = model(input_ids=rows, labels=rows)
        nats += float(out.loss.double()) * rows[:, 1:].numel()
        padding = out.logits[:, :-1].double().softmax(-1)[..., tokens:].sum(-1)
        mass += float(padding.sum())
        lost += float(-torch.log1p(-padding).sum())
    count = blocks[:, 1:].numel()
    sums = evaluate_tokens(model, probe_head(model, tokenizer), [{"input_ids": row} for row in blocks.tolist()])
    return {
        "plain": math.exp(nats / count),
        "emobench": perplexity(sums, [str(i) for i in range(len(blocks))]).value,
        "mean_probability_of_padding": mass / count,
        "factor": math.exp(lost / count),
    }


def blocks_of(tokenizer: Any, folder: Path, split: str, count: int) -> torch.Tensor:
    """Return the first blocks of a split of WikiText-2, (blocks, LENGTH)."""
    texts = load_texts("wikitext2", split, data_dirs=[folder], offline=True).texts
    packed = pack_blocks(texts, tokenizer, length=LENGTH)
    return torch.tensor(packed.tokens[: count * LENGTH].reshape(-1, LENGTH), dtype=torch.long)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a folder with a model whose head has no padding")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "padded_head-cpu.json")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model).float()
    test = blocks_of(tokenizer, options.data_dir, "test", options.blocks)
    train = blocks_of(tokenizer, options.data_dir, "train", options.steps * BATCH)
    measured = []
    for rows in ROWS:
        for kind in ("zeros", "resized", "resized, then trained"):
            made = padded(model, rows, kind)
            made = trained(made, train, options.steps) if kind.endswith("trained") else made
            row = {"rows": rows, "tokens": len(tokenizer), "kind": kind, **compared(made.eval(), tokenizer, test)}
            measured.append(row)
            print(f"{rows} rows, {kind}: plain {row['plain']:.4f}, emobench {row['emobench']:.4f}")
    write(
        {
            **origin(__file__, argv, "cpu"),
            "model": options.model.name,
            "text": f"the first {len(test)} blocks of {LENGTH} tokens of wikitext2.test",
            "steps": options.steps,
            "measured": measured,
        },
        options.out,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
