"""Samples for prefixes: our decoding against transformers' `generate`, per prefix and batched by hand.

    python tests/benchmarks speed.generation --model MODEL --data-dir FOLDER [--rounds 5] [--prefixes 256] [--out FILE]
    python tests/benchmarks speed.generation --device cuda    random weights, GPT-2-small's shape; --toy: a small one

5 samples of 80 tokens for each of 256 prefixes of 20 tokens: of `wikitext2.test.jsonl` in --data-dir, or random where
the model is. Arms, in an order that is reversed at each round, medians of one thread's process time or CUDA events:

    ours         sample_continuations
    as-loaded    the same with the model as transformers loads it, without `emobench.models.inference`
    per-prefix   generate for each prefix, num_return_sequences=5
    by-hand      generate for as many prefixes as a batch of ours has, left-padded, num_return_sequences=5
    loop         a loop of ten lines in such batches: prefixes read once for all samples, softmax, multinomial
    static       the same loop with transformers' StaticCache, whose rows each read their prefix

Also the share of texts that batches of 7 and of 64 prompts share with batches of one: 1 in float32 on a CPU.
`targets.py` holds what must be reached.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, alternating_seconds, median_and_spread, origin, over, require, shown_range, write
from speed.targets import GENERATION, show, verdicts
from torch import Tensor
from transformers import Cache, GPT2Config, GPT2LMHeadModel, StaticCache

from emobench.inference.decoding.continuations import device_memory, sample_continuations, token_budget
from emobench.inference.decoding.request import Continuation, Decoding, Sampling
from emobench.kinds.generation.prompts import select_prompts
from emobench.kinds.generation.rules import PromptRule
from emobench.metrics.batching import by_length, pad
from emobench.models.device import LoadOptions
from emobench.models.inference import optimize_for_inference
from emobench.models.model import Model

PREFIX, LENGTH, SAMPLES = 20, 80, 5
GPT2_SMALL: Any = {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12}
TOY: Any = {"vocab_size": 211, "n_embd": 32, "n_layer": 2, "n_head": 2}
ARMS = ["ours", "as-loaded", "loop", "static", "by-hand", "per-prefix"]
SAME = 64
"""Prompts whose texts are compared between batch sizes."""


class Arms:
    """Ways to sample for the same prompts."""

    def __init__(self, model: Any, prompts: list[list[int]], length: int) -> None:
        self.model = model
        self.own = copy.deepcopy(model)  # as `emobench run` loads it
        optimize_for_inference(self.own)
        self.prompts = prompts
        budget = token_budget(model, device_memory(model))
        self.decoding = Decoding(rule=Sampling(samples=SAMPLES), length=length, token_budget=budget)

    def run(self, name: str) -> Callable[[], object]:
        """Return what is timed."""
        if name in ("ours", "as-loaded"):
            return lambda: self.texts(self.decoding, self.own if name == "ours" else self.model)
        width = SAMPLES * max(len(ids) + self.decoding.length for ids in self.prompts)
        budget = 1 if name == "per-prefix" else self.decoding.token_budget or 1
        batches = by_length([width] * len(self.prompts), budget)
        decode = {"loop": self._loop, "static": self._static}.get(name, self._generate)
        return lambda: [decode([self.prompts[i] for i in batch]) for batch in batches]

    def texts(self, decoding: Decoding, model: Any = None) -> list[list[Continuation]]:
        """Return our texts, by the model that a run loads or by another one."""
        keys = [str(number) for number in range(len(self.prompts))]
        return sample_continuations(model or self.own, self.prompts, prompt_keys=keys, decoding=decoding)

    def identical(self, first: int) -> dict[str, float]:
        """Return the share of texts that batches of 7 and of all prompts share with batches of one."""
        few = Arms(self.model, self.prompts[:first], self.decoding.length)
        width = SAMPLES * (max(map(len, few.prompts)) + self.decoding.length)
        alone, *others = (
            [c for row in few.texts(replace(self.decoding, token_budget=size * width)) for c in row]
            for size in (1, 7, first)
        )
        return {
            str(size): sum(a == b for a, b in zip(alone, texts, strict=True)) / len(alone)
            for size, texts in zip((7, first), others, strict=True)
        }

    @torch.no_grad()
    def _loop(self, prompts: list[list[int]]) -> Tensor:
        read = self.model(input_ids=torch.tensor(prompts, device=self.model.device), use_cache=True, logits_to_keep=1)
        read.past_key_values.batch_repeat_interleave(SAMPLES)
        return self._sampled(read.logits[:, -1].repeat_interleave(SAMPLES, 0), read.past_key_values)

    @torch.no_grad()
    def _static(self, prompts: list[list[int]]) -> Tensor:
        ids_RT = torch.tensor(prompts, device=self.model.device).repeat_interleave(SAMPLES, 0)
        cache = StaticCache(config=self.model.config, max_cache_len=ids_RT.shape[1] + self.decoding.length)
        read = self.model(input_ids=ids_RT, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return self._sampled(read.logits[:, -1], cache)

    def _sampled(self, logits_RV: Tensor, cache: Cache) -> Tensor:
        ids: list[Tensor] = []
        while True:
            ids.append(logits_RV.float().softmax(-1).multinomial(1))
            if len(ids) == self.decoding.length:
                return torch.cat(ids, 1)
            logits_RV = self.model(input_ids=ids[-1], past_key_values=cache, use_cache=True).logits[:, -1]

    def _generate(self, prompts: list[list[int]]) -> object:
        ids_BT, mask_BT = pad(prompts, 0, self.model.device, left=True)
        with torch.no_grad():
            return self.model.generate(
                ids_BT,
                attention_mask=mask_BT,
                do_sample=True,
                top_k=0,
                num_return_sequences=SAMPLES,
                max_new_tokens=self.decoding.length,
                min_new_tokens=self.decoding.length,
                pad_token_id=0,
            )


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return results as a table in Markdown: the other arms' time over ours, its median and range over the rounds."""
    names = list(results[0]["over_ours"])
    lines = [f"| model, prefixes | {' | '.join(f'`{name}`' for name in names)} |", f"|{' --- |' * (len(names) + 1)}"]
    for found in results:
        cells = (shown_range(found["over_ours"][name]) for name in names)
        where = [found["instructions"]] if "instructions" in found else []
        case = ", ".join([found["shape"]["model"], str(found["shape"]["prefixes"]), *where])
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def random_model(shape: dict[str, Any], device: str) -> Any:
    """Return random weights; on CUDA in bfloat16."""
    config = GPT2Config(**shape, n_positions=256, bos_token_id=0, eos_token_id=0, initializer_range=0.1)
    model: Any = GPT2LMHeadModel(config).eval()
    return model.to(device, torch.bfloat16 if device == "cuda" else torch.float32)


def real_prompts(folder: Path, tokenizer: Any, count: int) -> list[list[int]]:
    """Return the beginnings of real texts."""
    lines = (folder / "wikitext2.test.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    rule = PromptRule(prefix=PREFIX, continuation=LENGTH)
    return [list(prompt.prefix_ids) for prompt in select_prompts(texts, tokenizer, rule, count).prompts]


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", help="a folder, or a name of `emobench models list`; default: random weights")
    parser.add_argument("--data-dir", type=Path, help="folder with wikitext2.test.jsonl, for --model")
    parser.add_argument("--toy", action="store_true", help="a small random model and few prefixes, to see that it runs")
    parser.add_argument("--prefixes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--arm", action="append", choices=ARMS, help="Repeatable. Default: all.")
    parser.add_argument("--out", type=Path, help="default: results/generation-DEVICE.json beside this")
    options = parser.parse_args(argv)
    require(options.device)
    if (options.model is None) != (options.data_dir is None):
        parser.error("--model and --data-dir go together: the prefixes of a random model are random.")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    count, length = (4, 6) if options.toy else (options.prefixes, LENGTH)
    if options.model is None:
        shape = TOY if options.toy else GPT2_SMALL
        model, name = random_model(shape, options.device), "random"
        prompts = torch.randint(1, shape["vocab_size"], (count, PREFIX)).tolist()
    else:
        loaded = Model(options.model, LoadOptions(offline=True, device=options.device)).load()
        model, name = loaded.model, Path(options.model).name
        prompts = real_prompts(options.data_dir, loaded.tokenizer, count)
    arms = Arms(model, prompts, length)
    names = options.arm or ARMS
    if "ours" not in names:
        parser.error("--arm ours is needed: the others are compared with it.")
    for arm in names:  # what a first call loads is no part of it
        Arms(model, prompts[:2], 2).run(arm)()
    seconds = alternating_seconds({arm: arms.run(arm) for arm in names}, options.device, rounds=options.rounds)
    found: dict[str, Any] = {
        **origin(__file__, argv, options.device),
        "shape": {
            "model": name,
            "vocabulary": model.config.vocab_size,
            "width": model.config.hidden_size,
            "dtype": str(model.dtype).removeprefix("torch."),
            "prefixes": len(prompts),
            "prefix": PREFIX,
            "length": length,
            "samples": SAMPLES,
        },
        "rounds": options.rounds,
        "variants": {arm: median_and_spread(times) for arm, times in seconds.items()},
        "over_ours": {arm: over(times, seconds["ours"]) for arm, times in seconds.items() if arm != "ours"},
    }
    del found["not_installed"]  # of other benchmarks' peers
    out = options.out or RESULTS / "speed" / f"generation-{options.device}.json"
    write(found, out)  # a time limit keeps what was measured
    found["identical"] = arms.identical(min(SAME, len(prompts)))
    found["targets"] = [] if options.toy else verdicts(GENERATION, found, options.device)
    write(found, out)
    for arm, row in found["variants"].items():
        ratio = row["seconds"] / found["variants"]["ours"]["seconds"]
        print(f"  {arm:12}{row['seconds']:9.2f} s{row['spread']:8.1%}{ratio:7.2f} x ours")
    print(f"  identical to batches of one prompt, by prompts in a batch: {found['identical']}")
    show(found["targets"])


if __name__ == "__main__":
    main(sys.argv[1:])
