"""Tokens per second of a whole training step: an attached objective against transformers' Trainer with Liger's MLE.

    python tests/benchmarks speed.whole_step [--device cpu|cuda] [--dtype auto|float32|bfloat16] [--out FILE]

A LLaMA-shaped random model of 1.1 billion parameters (TinyLlama's configuration), 8,192 tokens a step, sdpa attention,
no gradient checkpointing. Ours runs with the settings of `emobench train --device DEVICE --dtype DTYPE`: the same
recipe, arguments of the Trainer, cost embedding and kept cost rows; without validation and checkpoints. The peer has
the same precision and optimizer. Short trainings of each variant alternate in one process, each within the Trainer's
own loop; the first steps are not counted, the clock reads between synchronisations, and medians are compared.

Both sides get Liger's kernels for the body (RMSNorm, SwiGLU, rotary positions) where `liger body` stands: what then
differs is the loss. The peer's Trainer logs as it does by default, ours at each step.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from measuring import RESULTS, origin, require, text_like_tokens, write
from speed.targets import show, verdicts, whole_step_targets
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from emobench.models.device import resolve_dtype
from emobench.models.head import probe_head
from emobench.objectives import StatisticsObjective
from emobench.training.attach import attach
from emobench.training.model_changes import liger_body
from emobench.training.recipe import Recipe
from emobench.training.train import ObjectiveTrainer, Training, set_up, training_arguments
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

TINY_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}
TOY = TINY_LLAMA | {"vocab_size": 500, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TOY |= {"num_attention_heads": 4, "max_position_embeddings": 32}


@dataclass(frozen=True)
class Variant:
    """One way to train: an objective of ours, or None for the model's own loss, and which Liger kernels it gets."""

    objective: type[StatisticsObjective] | None
    liger_body: bool = False
    liger_loss: bool = False


VARIANTS: dict[str, Variant] = {
    "trainer, mle, liger": Variant(None, liger_body=True, liger_loss=True),
    "trainer, mle": Variant(None),
    "emobench, mle, liger body": Variant(Mle, liger_body=True),
    "emobench, emo, liger body": Variant(Emo, liger_body=True),
    "emobench, mle": Variant(Mle),
    "emobench, emo": Variant(Emo),
}
BASELINE = "trainer, mle, liger"


class Stopwatch(TrainerCallback):
    """Seconds from the end of the last uncounted step to the end of training."""

    def __init__(self, uncounted: int, device: str) -> None:
        self._uncounted, self._device = uncounted, device
        self._start = self.seconds = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step in (self._uncounted, state.max_steps):
            if self._device == "cuda":
                torch.cuda.synchronize()
            self.seconds = time.perf_counter() - self._start
            self._start = time.perf_counter()


class Bench:
    """The models, one with Liger's kernels in its body and one without, and the data."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        shape = TOY if options.toy else TINY_LLAMA
        self.length = shape["max_position_embeddings"]
        fields: dict[str, Any] = {**shape, "attn_implementation": "sdpa", "use_cache": False}
        self.config = config = LlamaConfig(**fields, tie_word_embeddings=False)
        self.models: dict[bool, Any] = {}
        rng = torch.Generator().manual_seed(0)
        rows = (options.uncounted + options.steps) * options.sequences
        batch = options.sequences * self.length
        tokens = text_like_tokens((rows, self.length), config.vocab_size, rng, batch=batch)
        self.rows = [{"input_ids": row, "labels": row} for row in tokens]
        self.distinct_share = float(len(tokens[: options.sequences].unique())) / batch

    def model(self, with_liger: bool) -> Any:
        """Return the model that is trained with Liger's layers or the one without, free of a former training's loss."""
        if with_liger not in self.models:
            torch.manual_seed(0)
            with torch.device(self.options.device):
                weights = getattr(torch, resolve_dtype(self.options.dtype))
                self.models[with_liger] = LlamaForCausalLM(self.config).to(weights)
        model = self.models[with_liger]
        for module in (model, model.lm_head):
            for name in ("forward", "_original_forward", "accepts_loss_kwargs", "_is_accelerate_prepared"):
                vars(module).pop(name, None)
        return model.train()

    def train(self, variant: Variant) -> dict[str, float]:
        """Train for a few steps; returns tokens per second of the counted ones, and the peak of memory."""
        cuda = self.options.device == "cuda"
        model = self.model(variant.liger_body)
        elsewhere = 0  # bytes of the model with the other body
        if cuda:
            torch.cuda.reset_peak_memory_stats()
            elsewhere = torch.cuda.memory_allocated() - sum(weight.nbytes for weight in model.parameters())
        watch = Stopwatch(self.options.uncounted, self.options.device)
        with tempfile.TemporaryDirectory() as folder:
            job = self._job(model, variant, Path(folder))
            common = {
                "model": model,
                "args": self._arguments(job, log_each=variant.objective is not None),
                "train_dataset": self.rows,
                "data_collator": _stack,
                "callbacks": [watch],
            }
            if variant.objective is None:
                if variant.liger_loss:
                    _liger_loss(model)
                trainer = Trainer(**common)
            else:
                head = probe_head(model)
                set_up(job, head, None)
                attached = attach(model, job.objective, head)
                trainer = ObjectiveTrainer(**common, attached=attached, on_step=lambda values: None)
            trainer.remove_callback(PrinterCallback)
            with liger_body(model) if variant.liger_body else nullcontext():
                trainer.train()
        tokens = self.options.steps * self.options.sequences * self.length
        peak = torch.cuda.max_memory_allocated() - elsewhere if cuda else 0
        del trainer, common, job
        model.zero_grad()
        self.model(variant.liger_body)  # lets go of the objective
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
        return {"tokens_per_second": tokens / watch.seconds, "peak_bytes": peak}

    def _job(self, model: Any, variant: Variant, folder: Path) -> Training:
        options = self.options
        recipe = Recipe(name="step", corpus="random", batch=options.sequences, learning_rate=1e-5)
        return Training(
            model=model,
            tokenizer=None,
            objective=(variant.objective or Mle)(),
            recipe=recipe.resolved(options.device, options.dtype),
            train=self.rows,
            validation=[],
            collate=_stack,
            seed=0,
            folder=folder,
            device=options.device,
            load_head=lambda name: torch.empty(0),
            load_model=lambda name: None,
        )

    def _arguments(self, job: Training, *, log_each: bool) -> TrainingArguments:
        arguments = training_arguments(job, job.folder)
        arguments.max_steps = self.options.uncounted + self.options.steps
        arguments.logging_steps = 1 if log_each else 500
        arguments.save_strategy, arguments.eval_strategy = SaveStrategy.NO, IntervalStrategy.NO
        arguments.load_best_model_at_end = False
        return arguments


def _stack(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _liger_loss(model: Any) -> None:
    from liger_kernel.transformers.model.llama import lce_forward  # type: ignore[import-not-found]

    # What apply_liger_kernel_to_llama(model=model, fused_linear_cross_entropy=True) does.
    model.forward = MethodType(lce_forward, model)


def measure(bench: Bench, rounds: int) -> dict[str, Any]:
    """Return the median tokens per second of each variant over alternating rounds; a variant that fails is named."""
    names = [name for name, variant in VARIANTS.items() if _available(variant)]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for name in names[:: 1 if number % 2 == 0 else -1]:
            if name in failed:
                continue
            try:
                found[name].append(bench.train(VARIANTS[name]))
            except Exception as error:  # one variant that breaks must not cost the measurement of the others
                failed[name] = f"{type(error).__name__}: {str(error).strip()[:300]}"
    rows = {}
    for name in names:
        if name not in failed:
            rates = [one["tokens_per_second"] for one in found[name]]
            rate = statistics.median(rates)
            rows[name] = {
                "tokens_per_second": round(rate, 1),
                "spread": round((max(rates) - min(rates)) / rate, 3),
                "seconds": bench.options.sequences * bench.length / rate,
                "peak_bytes": max(one["peak_bytes"] for one in found[name]),
            }
    return {"variants": rows, "failed": failed, "left_out": [name for name in VARIANTS if name not in names]}


def _available(variant: Variant) -> bool:
    return not variant.liger_body or (torch.cuda.is_available() and find_spec("liger_kernel") is not None)


def main(argv: list[str]) -> None:
    options = _options(argv)
    require(options.device)
    bench = Bench(options)
    shape = {"vocabulary": bench.config.vocab_size, "width": bench.config.hidden_size}
    found: dict[str, Any] = {
        **origin(__file__, argv, options.device),
        "shape": {"tokens": options.sequences * bench.length, "sequences": options.sequences, **shape},
        "model": {**(TOY if options.toy else TINY_LLAMA), "dtype": options.dtype},
        "distinct_share": round(bench.distinct_share, 4),
        "rounds": options.rounds,
        "steps": options.steps,
    }
    found |= measure(bench, options.rounds)
    rows: list[dict[str, Any]] = []
    for own in ("emobench, emo, liger body", "emobench, emo"):
        rows += verdicts(whole_step_targets(own, BASELINE), found, options.device)
    found["targets"] = rows
    print(found["hardware"], found["shape"], f"dtype {options.dtype}", found["failed"] or "")
    base = found["variants"].get(BASELINE, {}).get("tokens_per_second")
    for name, row in found["variants"].items():
        ratio = f"{row['tokens_per_second'] / base:8.3f}" if base else f"{'-':>8}"
        rate = f"{row['tokens_per_second']:12.0f} tokens/s{row['spread']:8.1%}"
        print(f"  {name:28}{rate}{ratio} x liger{row['peak_bytes'] / 2**30:8.1f} GiB  U/N {bench.distinct_share:.3f}")
    show(rows, bench.distinct_share)
    dtype = "" if options.dtype == "auto" else f"-{options.dtype}"
    write(found, options.out or RESULTS / "speed" / f"whole_step-{options.device}{dtype}.json")
    if any(name.startswith("emobench") for name in found["failed"]):
        sys.exit(f"Our own step failed: {found['failed']}")


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="as for emobench")
    parser.add_argument("--sequences", type=int, default=4, help="of 2,048 tokens, in a step")
    parser.add_argument("--steps", type=int, default=8, help="counted steps of one training")
    parser.add_argument("--uncounted", type=int, default=3, help="steps before them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--toy", action="store_true", help="a model of 2 layers, to see that it runs")
    parser.add_argument("--out", type=Path, help="default: results/whole_step-DEVICE.json beside this")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main(sys.argv[1:])
