"""Which tokens EMO's cost calls cheap: rare or frequent ones, by the cosine and by the centred cosine.

    python tests/benchmarks evidence.token_costs --data-dir DIR [--model NAME ...] [--out FILE]

EMO pays for the probability of a token v the cost 1 - cos(e_t, e_v) from the target t (EMO paper, Eq. 14). Where this
is low for tokens of any kind, mass moves to them at little cost. For each token the mean cost over the targets of
WikiText-2's training text is taken, then the mean over tokens of a class of frequency, and Spearman's correlation
with the counts. Centred: the mean row of the head is subtracted first. DIR holds wikitext2.train.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measuring import RESULTS, origin, write
from scipy.stats import spearmanr
from torch import Tensor

from emobench.data.texts import load_texts
from emobench.models.device import LoadOptions
from emobench.models.model import Model

MODELS = ("smollm2-135m-instruct", "gemma-3-270m")
CLASSES = {"never": (0, 0), "1 to 9": (1, 9), "10 to 99": (10, 99), "100 and more": (100, 10**12)}
"""Classes of tokens by their count in the text."""


def costs(weight_VD: Tensor, count_V: Tensor) -> Tensor:
    """Return the mean cost of each token over the targets, (V,)."""
    unit_VD = F.normalize(weight_VD, dim=-1)
    target_D = (count_V / count_V.sum()).to(unit_VD.dtype) @ unit_VD
    return 1 - unit_VD @ target_D


def measured(name: str, data: Path) -> dict[str, Any]:
    loaded = Model(name, LoadOptions(offline=True)).load()
    tokenizer = loaded.tokenizer
    weight_VD = loaded.model.get_output_embeddings().weight.detach()[: len(tokenizer)].double()
    texts = load_texts("wikitext2", "train", data_dirs=(data,), offline=True).texts
    ids = [i for text in texts for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
    count_V = torch.bincount(torch.tensor(ids), minlength=len(weight_VD)).double()
    found: dict[str, Any] = {"tokens_of_text": len(ids), "rows": len(weight_VD), "classes": {}}
    inside = {label: (count_V >= low) & (count_V <= high) for label, (low, high) in CLASSES.items()}
    found["classes"] = {label: int(chosen_V.sum()) for label, chosen_V in inside.items()}
    for kind, rows_VD in {"cosine": weight_VD, "centred": weight_VD - weight_VD.mean(0)}.items():
        cost_V = costs(rows_VD, count_V)
        found[kind] = {
            "mean_cost": {label: cost_V[chosen_V].mean().item() for label, chosen_V in inside.items()},
            "spearman_with_count": float(spearmanr(cost_V.numpy(), count_V.numpy()).statistic),
        }
    return found


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--model", action="append", help="Repeatable. Default: SmolLM2 and Gemma 3 270M.")
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "token_costs.json")
    given = parser.parse_args(argv)
    found = {Path(name).name: measured(name, given.data_dir) for name in given.model or MODELS}
    write({**origin(__file__, [], "cpu"), "models": found}, given.out)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
