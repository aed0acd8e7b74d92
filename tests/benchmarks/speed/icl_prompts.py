"""What `icl_scoring.py` scores: real prompts in a tokenizer of GPT-2's size, or random ones of the same lengths."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.kinds.icl.prompts import Draft, ExamplePrompts, make_prompts
from emobench.kinds.icl.rules import IclProtocol

CONTEXT = 2048
END = "<|endoftext|>"
# Of each task: examples, labels, mean and spread of the prefix's tokens, tokens of a label. Measured on real prompts.
LENGTHS = {"trec": (6, 190, 25, 3), "ag_news": (4, 620, 80, 3), "sst2": (2, 310, 60, 2)}


@dataclass(frozen=True)
class Problem:
    """The test examples of one task with their shots."""

    name: str
    rules: IclProtocol
    drafts: list[Draft]
    pool: list[str]
    """The texts that shots are drawn from."""

    def prompts(self, tokenizer: Any) -> list[ExamplePrompts]:
        """Tokenize them: a part of what is timed."""
        return make_prompts(self.drafts, tokenizer, self.rules, CONTEXT, task=self.name)


def problems(names: dict[str, int], data: Path) -> list[Problem]:
    """Return the first examples of each task's test split by the paper's prompts, with 8 shots drawn from the pool."""
    from emobench.data.labelled import load_labelled
    from emobench.registry import find_task

    found = []
    for name, count in names.items():
        task = find_task(name)
        assert task.dataset is not None
        assert isinstance(task.protocol, IclProtocol)
        loaded = load_labelled(task.dataset, data_dirs=[data], offline=True)
        draw = random.Random(0)
        drafts = [
            Draft(example=example, shots=tuple(draw.sample(list(loaded.pool), task.protocol.shots)))
            for example in loaded.test[:count]
        ]
        found.append(Problem(name, task.protocol, drafts, [example.fields["text"] for example in loaded.pool]))
    return found


def tokenizer_of(texts: Sequence[str], vocabulary: int) -> Any:
    """Return a byte-level BPE trained on texts, without a BOS, as GPT-2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, model_max_length=CONTEXT)


def random_prompts(name: str, count: int, vocabulary: int) -> list[ExamplePrompts]:
    """Return prompts of random tokens, as long as a task's."""
    labels, mean, spread, behind = LENGTHS[name]
    draw = random.Random(0)
    prompts = []
    for number in range(count):
        prefix = draw.choices(range(3, vocabulary), k=max(8, round(draw.gauss(mean, spread))))
        first = draw.sample(range(3, vocabulary), labels)
        tokens = tuple((*prefix, token, *draw.choices(range(3, vocabulary), k=behind - 1)) for token in first)
        starts = (len(prefix),) * labels
        prompts.append(ExamplePrompts(id=str(number), tokens=tokens, label_starts=starts, shots=()))
    return prompts
