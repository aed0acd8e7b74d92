"""The plain loop of the docs against emobench, on a real model and real texts.

    python tests/benchmarks evidence.plain_loop --model NAME --data-dir FOLDER [--steps 20] [--double] [--out FILE]

Both train the same model on the same batches in the same order. Compared: the loss and the gradient's norm of each
step, and the final weights. If they agree, a study's result is the method's and not the harness's.
FOLDER/wikitext2.{train,validation}.jsonl are read.

In float32 the weights part: AdamW divides by the gradient's own size, so that rounding moves a weight with almost no
gradient by a complete step. With --double both compute in float64, and only a difference of method is left.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write
from torch import Tensor

from emobench.data.packing import Packed, RowCollator, pack_blocks
from emobench.data.texts import load_texts
from emobench.models.catalog import find_model
from emobench.models.device import LoadOptions
from emobench.models.load import load_model
from emobench.models.quiet import quiet_libraries
from emobench.registry import find_recipe, load_objective
from emobench.training.train import Training, train

LOOP = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "plain_loop.py"))
Log = list[dict[str, float]]

VALIDATION_ROWS = 2


def ours(loaded: Any, name: str, options: argparse.Namespace, folder: Path) -> tuple[Log, list[Tensor]]:
    """Train with emobench, and return the loss and the gradient's norm of each step, and the batches."""
    batches: list[Tensor] = []
    collator = RowCollator(0)

    def collate(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = collator(rows)
        batches.append(batch["input_ids"])
        return batch

    recipe = find_recipe("lm-finetune", {"epochs": 1, "batch": options.batch, "select": "last"})
    rows = {split: packed(loaded.tokenizer, split, options) for split in ("train", "validation")}
    train(
        Training(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            objective=load_objective(name).objective,
            recipe=recipe,
            collate=collate,
            seed=0,
            folder=folder,
            load_head=_not_needed,
            load_model=_not_needed,
            **rows,
        )
    )
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    log = [{key: line[key] for key in ("loss", "grad_norm")} for line in lines if "grad_norm" in line]
    return log, batches[: len(log)]  # those of the validation come last


def packed(tokenizer: Any, split: str, options: argparse.Namespace) -> Packed:
    """Return the first blocks of a split: as many as the steps need."""
    texts = load_texts("wikitext2", split, data_dirs=(options.data_dir,), offline=True)
    rows = options.steps * options.batch if split == "train" else VALIDATION_ROWS
    return pack_blocks(texts.texts, tokenizer, length=options.length).first(rows * options.length)


def _not_needed(name: str) -> Tensor:
    raise AssertionError(f"the cost embedding of {name} is the model's own")


def compared(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Return how far the two are apart: relative differences of losses and norms, and of all weights together."""
    source = find_model(options.model, offline=True)
    with tempfile.TemporaryDirectory() as temporary, quiet_libraries():
        trained, loop = load_model(source, LoadOptions()), load_model(source, LoadOptions())
        if options.double:
            trained.model.double()
            loop.model.double()
        start = {key: value.clone() for key, value in loop.model.state_dict().items()}
        log, batches = ours(trained, name, options, Path(temporary))
        validation_BT = Tensor(packed(loop.tokenizer, "validation", options).tokens).long().view(-1, options.length)
        lines = LOOP["train"](loop.model, [batches], validation_BT, LOOP["OBJECTIVES"][name])
        plain_log = [line for line in lines if "loss" in line]
    moved, apart, largest = 0.0, 0.0, 0.0
    after = trained.model.state_dict()
    for key, value in loop.model.state_dict().items():
        difference = (after[key].double() - value.double()).abs()
        largest = max(largest, float(difference.max()))
        apart += float(difference.square().sum())
        moved += float((value.double() - start[key].double()).square().sum())
    relative = {
        f"largest_relative_difference_of_{key}": max(
            abs(one[key] - other[key]) / other[key] for one, other in zip(log, plain_log, strict=True)
        )
        for key in ("loss", "grad_norm")
    }
    return {
        "steps": len(log),
        "first_loss": plain_log[0]["loss"],
        "last_loss": plain_log[-1]["loss"],
        "relative_difference_of_first_grad_norm": abs(log[0]["grad_norm"] / plain_log[0]["grad_norm"] - 1),
        **relative,
        "largest_difference_of_a_weight": largest,
        "difference_of_weights_by_their_change": (apart / moved) ** 0.5,
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--double", action="store_true", help="Compute in float64.")
    parser.add_argument("--out", type=Path, help="Default: a file of results/evidence, by precision.")
    options = parser.parse_args(argv)
    results = {name: compared(name, options) for name in ("mle", "emo")}
    precision = "float64" if options.double else "float32"
    out = options.out or RESULTS / "evidence" / f"plain_loop-{precision}-cpu.json"
    write({**origin(__file__, argv, "cpu"), "objectives": results}, out)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
