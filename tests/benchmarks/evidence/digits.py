"""Does a distance of digits in the loss make predicted numbers better? A noisy measurement, written digit by digit.

    python tests/benchmarks evidence.digits [--runs DIR]    # a training is kept in DIR, and not made again

A row is "37=514": a setting x from 0 to 99, and a measured value of three digits,

    z = 500 + 300 sin(x / 16) + x + e,    e normal with a standard deviation of 20.

A tiny Llama is trained from random weights on 2,000 rows with each objective, on the digits of z alone. It writes the
most likely digit three times. Scored is the distance of its number to z on 1,000 other rows, in units of z. A loss of
token distances sees the digits one at a time: 399 and 400 are far from each other, as digits.

Each objective has the same four learning rates. One is chosen for it by 1,000 validation rows and a seed of its own;
with this rate it is trained with three more seeds. The verdict is that of `emobench compare`: paired by seed and by row
(`compare_rows`), with p adjusted for the number of rivals (Holm).

Legend: I rows, B rows of a batch, T positions.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from measuring import RESULTS, origin, write
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import emobench
from emobench.core.settings import code_sha256
from emobench.leaderboard.stats.classical import ALPHA, holm
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.series import Series

OUT = RESULTS / "evidence" / "digits-cpu.json"
PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "objectives.md"
BEGIN, END = "<!-- digits: begin -->", "<!-- digits: end -->"
BASELINE = "mle"
OBJECTIVES = (
    BASELINE,
    "emo(cost=digits)",
    "ntl",
    "demd(cost=digits) + mle",
)
RATES = (1e-3, 2e-3, 4e-3, 8e-3)
CHOICE_SEED, SEEDS = 100, (0, 1, 2)
ROWS = {"train": 2000, "validation": 1000, "test": 1000}
NOISE = 20.0
STEPS, BATCH = 600, 64
SYMBOLS = "0123456789="
PROMPT, DIGITS = len("37="), 3


def make_rows() -> dict[str, Tensor]:
    """Return the token ids of the rows of each split, (I, T)."""
    rng = np.random.default_rng(0)
    splits = {}
    for split, count in ROWS.items():
        x_I = rng.integers(0, 100, count)
        z_I = 500 + 300 * np.sin(x_I / 16) + x_I + rng.normal(0, NOISE, count)
        ids = []
        for x, z in zip(x_I, z_I.round().astype(int), strict=True):
            ids.append([SYMBOLS.index(symbol) for symbol in f"{x:02}={z:03}"])
        splits[split] = torch.tensor(ids)
    return splits


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are the symbols."""
    vocabulary = {symbol: place for place, symbol in enumerate(SYMBOLS)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="=")))


def make_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(SYMBOLS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=PROMPT + DIGITS,
    )
    return LlamaForCausalLM(config)


def train(objective: str, rate: float, seed: int, rows_IT: Tensor) -> LlamaForCausalLM:
    """Train a model on the digits of the rows, with AdamW and a rate that rises for a tenth of the steps and falls."""
    model = make_model(seed).train()
    attached = emobench.attach(model, objective, tokenizer=make_tokenizer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, STEPS, pct_start=0.1, cycle_momentum=False)
    generator = torch.Generator().manual_seed(seed)
    labels_IT = rows_IT.clone()
    labels_IT[:, :PROMPT] = -100
    for step in range(STEPS):
        attached.begin_step(step, STEPS)
        places_B = torch.randint(len(rows_IT), (BATCH,), generator=generator)
        model(input_ids=rows_IT[places_B], labels=labels_IT[places_B]).loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def errors(model: LlamaForCausalLM, rows_IT: Tensor) -> list[float]:
    """Return the distance of the written number to the measured value of each row."""
    ids_IT = rows_IT[:, :PROMPT]
    for _ in range(DIGITS):
        logits_I = model(input_ids=ids_IT).logits[:, -1, :10]
        ids_IT = torch.cat([ids_IT, logits_I.argmax(dim=1, keepdim=True)], dim=1)
    powers_T = 10 ** torch.arange(DIGITS - 1, -1, -1)
    written_I, measured_I = ((ids[:, PROMPT:] * powers_T).sum(dim=1) for ids in (ids_IT, rows_IT))
    return (written_I - measured_I).abs().double().tolist()


@torch.no_grad()
def nats(model: LlamaForCausalLM, rows_IT: Tensor) -> float:
    """Return the mean of -log q of the digits, in nats."""
    log_q_IT = model(input_ids=rows_IT).logits[:, PROMPT - 1 : -1].log_softmax(-1)
    return -float(log_q_IT.gather(2, rows_IT[:, PROMPT:, None]).mean())


def trained(objective: str, rate: float, seed: int, rows: Mapping[str, Tensor], runs: Path) -> dict[str, Any]:
    """Return the errors and nats of one training, which is made unless its file is there."""
    name = f"{objective} {rate:g} {seed} {code_sha256([__file__])[:12]}.json"
    file = runs / name
    if not file.exists():
        model = train(objective, rate, seed, rows["train"])
        test_IT = rows["validation" if seed == CHOICE_SEED else "test"]
        write({"errors": errors(model, test_IT), "nats": nats(model, test_IT)}, file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)
        print(name, fmean(json.loads(file.read_text())["errors"]), flush=True)
    return json.loads(file.read_text())


def measure(objective: str, rows: Mapping[str, Tensor], runs: Path) -> dict[str, Any]:
    """Return an objective's chosen rate, and its trainings with that rate by seed."""
    validated = {rate: fmean(trained(objective, rate, CHOICE_SEED, rows, runs)["errors"]) for rate in RATES}
    rate = min(RATES, key=lambda one: validated[one])
    return {
        "validated": validated,
        "rate": rate,
        "seeds": {seed: trained(objective, rate, seed, rows, runs) for seed in SEEDS},
    }


def series(measured: Mapping[str, Any]) -> Series:
    """Return the mean errors of an objective as `emobench compare` reads them."""
    values, examples = {}, {}
    for seed, one in measured["seeds"].items():
        values[seed] = fmean(one["errors"])
        examples[seed] = {f"row {place}": (error, 1.0) for place, error in enumerate(one["errors"])}
    return Series(values=values, examples=examples, log_scale=False, of_examples=True)


def plain(name: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    seeds = list(measured["seeds"].values())
    return {
        "objective": name,
        "rate": measured["rate"],
        "validated": measured["validated"],
        "mean_absolute_errors": [fmean(one["errors"]) for one in seeds],
        "medians": [float(np.median(one["errors"])) for one in seeds],
        "nats": [one["nats"] for one in seeds],
    }


def table(found: Mapping[str, Any]) -> str:
    lines = [
        "| objective | learning rate | mean absolute error | median | nats a digit | difference to MLE | p (Holm) | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = [f"`{row['objective']}`", f"{row['rate']:g}"]
        for name, decimals in (("mean_absolute_errors", 2), ("medians", 1), ("nats", 3)):
            spread = np.std(row[name], ddof=1)
            cells.append(f"{fmean(row[name]):.{decimals}f} ± {spread:.{decimals}f}")
        if row["objective"] == BASELINE:
            cells += ["", "", ""]
        else:
            low, high = row["ci95"]
            cells += [f"{row['effect']:+.2f} [{low:+.2f}, {high:+.2f}]", f"{row['p_holm']:.3f}", row["verdict"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/digits"))
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows = make_rows()
    measured = {name: measure(name, rows, options.runs) for name in OBJECTIVES}
    plain_rows = [plain(name, one) for name, one in measured.items()]
    differences = []
    for name in OBJECTIVES[1:]:
        difference = compare_rows([series(measured[name])], [series(measured[BASELINE])])
        assert isinstance(difference, Difference), difference
        differences.append(difference)
    adjusted = holm([one.p for one in differences])
    for row, one, p in zip(plain_rows[1:], differences, adjusted, strict=True):
        verdict = "tied" if p > ALPHA else "better" if one.effect < 0 else "worse"
        row |= {"effect": one.effect, "ci95": one.ci95, "p": one.p, "p_holm": p, "verdict": verdict, "test": one.test}
    noise = NOISE * math.sqrt(2 / math.pi)
    found = {**origin(__file__, [], "cpu"), "seeds": SEEDS, "rates": RATES, "least_error": noise, "rows": plain_rows}
    write(found, OUT)
    text = PAGE.read_text()
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n{table(found)}\n{text[stop:]}")


if __name__ == "__main__":
    main(sys.argv[1:])
