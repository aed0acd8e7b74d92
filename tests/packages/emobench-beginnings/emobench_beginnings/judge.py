"""The metric `judged`: the probability that a language model answers yes and not no, when it is asked about a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

import emobench


@dataclass(frozen=True)
class Judged(emobench.Metric):
    """P(yes) / (P(yes) + P(no)) after the text and a question."""

    name = "judged"
    higher_is_better = True
    unit = "fraction"

    judge: str = "pretrained"
    """A causal LM; "pretrained" is the evaluated model before training."""
    question: str = " Is this text good? Answer:"
    yes: str = " yes"
    no: str = " no"

    @property
    def models(self) -> Mapping[str, emobench.AuxiliaryModel]:
        return {"judge": emobench.AuxiliaryModel(self.judge, "lm")}

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        judge = context.model("judge")
        first = [judge.tokenizer(answer, add_special_tokens=False)["input_ids"][0] for answer in (self.yes, self.no)]
        values, done = np.zeros((len(texts.samples), len(texts.ids))), 0
        with context.work("judge", "texts") as progress, torch.no_grad():
            for place, text in np.ndenumerate(np.array(texts.texts, dtype=object)):
                ids = judge.tokenizer(text + self.question, return_tensors="pt")["input_ids"].to(judge.model.device)
                values[place] = judge.model(ids).logits[0, -1, first].float().softmax(-1)[0]
                progress(done := done + 1, values.size)
        return values


@emobench.hookimpl
def emobench_metrics() -> list[type[emobench.MetricGroup]]:
    return [Judged]
