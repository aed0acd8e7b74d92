"""The harness in 150 lines: a training and its validation by emobench, as a plain PyTorch loop.

    python docs/plain_loop.py --model gpt2 --train TRAIN.txt --validation VALIDATION.txt --objective emo --out FOLDER

Nothing here is emobench's own code: the losses are the equations of the EMO paper (Ren et al., ICLR 2024), on complete
logits and differentiated by autograd. emobench computes the same numbers in less memory and time, continues after a
kill, and records what it did; `tests/emobench/training/test_plain_loop.py` trains with both and compares each step.

Legend: N target tokens, V vocabulary, D hidden width, B blocks, T positions of a block.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

EPOCHS, BATCH, RATE, LENGTH = 3, 32, 5e-5, 256  # section 4.1.1 of the paper, and its code


# 1. The objectives: the loss of each target token, in nats. `.detach()` is the paper's stop-gradient.


def mle(log_q_NV: Tensor, targets_N: Tensor, embedding_VD: Tensor) -> Tensor:
    """Eq. 1: -log q_t."""
    return F.nll_loss(log_q_NV, targets_N, reduction="none")


def tailr(log_q_NV: Tensor, targets_N: Tensor, embedding_VD: Tensor, gamma: float = 0.1) -> Tensor:
    """Eq. 17: MLE, weighted by q / (gamma + (1 - gamma) q)."""
    mle_N = mle(log_q_NV, targets_N, embedding_VD)
    q_N = torch.exp(-mle_N).detach()
    return q_N / (gamma + (1 - gamma) * q_N) * mle_N


def mixce(log_q_NV: Tensor, targets_N: Tensor, embedding_VD: Tensor, gamma: float = 0.9) -> Tensor:
    """Eq. 18: MLE, weighted by gamma + (1 - gamma) q."""
    mle_N = mle(log_q_NV, targets_N, embedding_VD)
    return (gamma + (1 - gamma) * torch.exp(-mle_N).detach()) * mle_N


def emo(log_q_NV: Tensor, targets_N: Tensor, embedding_VD: Tensor) -> Tensor:
    """Eq. 14 and 19: the mean of MLE and the earth mover's bound, which is scaled to the value of MLE.

    The bound is the expected cosine distance to the target, by the pre-trained rows of the head.
    """
    mle_N = mle(log_q_NV, targets_N, embedding_VD)
    unit_VD = F.normalize(embedding_VD, dim=-1)
    cost_NV = 1 - unit_VD[targets_N] @ unit_VD.T
    demd_N = (log_q_NV.exp() * cost_NV).sum(-1)
    return 0.5 * (mle_N + (mle_N / demd_N).detach() * demd_N)


OBJECTIVES: dict[str, Callable[..., Tensor]] = {"mle": mle, "tailr": tailr, "mixce": mixce, "emo": emo}


# 2. The data: texts are concatenated and cut into blocks, in groups of 1,000, as transformers' run_clm.py does.


def blocks(texts: Sequence[str], tokenizer: Any, length: int = LENGTH) -> Tensor:
    """Return the blocks of a corpus, (B, T)."""
    rows: list[Tensor] = []
    for start in range(0, len(texts), 1000):
        tokenized = tokenizer(list(texts[start : start + 1000]))["input_ids"]
        tokens = torch.tensor([token for text in tokenized for token in text])
        rows.append(tokens[: len(tokens) // length * length].view(-1, length))
    return torch.cat(rows)


def shuffled(rows_BT: Tensor, batch: int = BATCH, epochs: int = EPOCHS, seed: int = 0) -> Iterator[list[Tensor]]:
    """Yield the batches of each epoch, in a new order."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(rows_BT), generator=generator)
        yield list(rows_BT[order].split(batch))


# 3. The training: AdamW, a learning rate that falls linearly to 0, and the weights of the best epoch.


def losses(model: Any, ids_BT: Tensor, objective: Callable[..., Tensor], embedding_VD: Tensor) -> Tensor:
    """Return the loss of each target token of some blocks: all but the first of a block."""
    logits_NV = model(input_ids=ids_BT).logits[:, :-1].flatten(0, 1)
    return objective(logits_NV.log_softmax(-1), ids_BT[:, 1:].flatten(), embedding_VD)


@torch.no_grad()
def validate(model: Any, rows_BT: Tensor, batch: int = BATCH) -> float:
    """Return the mean MLE of all target tokens, in nats. Its exponential is the perplexity."""
    model.eval()
    each = [losses(model, ids_BT, mle, torch.empty(0)).double() for ids_BT in rows_BT.split(batch)]
    model.train()
    return float(torch.cat(each).mean())


def train(
    model: Any,
    epochs: Sequence[Sequence[Tensor]],
    validation_BT: Tensor,
    objective: Callable[..., Tensor],
    *,
    rate: float = RATE,
    micro_batches: int = 1,
) -> list[dict[str, float]]:
    """Train on the batches of each epoch, and return a line for each step and for each validation.

    The loss is divided once, by all target tokens of the batch, so that its micro-batches do not change the gradient.
    Afterwards the model has the weights of the epoch with the lowest validation MLE.
    """
    embedding_VD = model.get_output_embeddings().weight.detach().clone()  # of the pre-trained model
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    steps = sum(len(batches) for batches in epochs)
    log: list[dict[str, float]] = []
    best, best_weights = math.inf, None
    step = 0
    model.train()
    for batches in epochs:
        for batch_BT in batches:
            optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            targets = batch_BT[:, 1:].numel()
            total = 0.0
            for ids_BT in batch_BT.chunk(micro_batches):
                loss = losses(model, ids_BT, objective, embedding_VD).sum() / targets
                loss.backward()
                total += loss.item()
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            log.append({"step": step, "loss": total, "grad_norm": norm.item()})
        validated = validate(model, validation_BT)
        log.append({"step": step, "eval_mle": validated})
        if validated < best:
            best, best_weights = validated, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return log


def main() -> None:
    """Train by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--train", type=Path, required=True, help="A file with a text on each line.")
    parser.add_argument("--validation", type=Path, required=True)
    parser.add_argument("--objective", choices=OBJECTIVES, default="emo")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    rows = {
        name: blocks(getattr(options, name).read_text().splitlines(), tokenizer) for name in ("train", "validation")
    }
    epochs = list(shuffled(rows["train"]))
    for line in train(model, epochs, rows["validation"], OBJECTIVES[options.objective]):
        print(line)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
