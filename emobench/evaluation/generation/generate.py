"""Prompts to samples on disk, for tasks of kind `generation`."""

from __future__ import annotations

from pathlib import Path

from emobench.data.texts import Texts
from emobench.evaluation.generation.decoding import Decoding
from emobench.evaluation.generation.prompts import first_ids, select_prompts
from emobench.evaluation.generation.samples import make_samples, write_samples
from emobench.evaluation.generation.sampling import sample_continuations
from emobench.evaluation.kinds import Subject
from emobench.models.head import token_count
from emobench.tasks.generation import GenerationProtocol

SAMPLES = "samples.jsonl"


def generate_samples(subject: Subject, task: str, rules: GenerationProtocol, texts: Texts, folder: Path) -> None:
    """Write the samples of all prompts into `folder`, which may hold those of an interrupted attempt."""
    prompts = select_prompts(texts.texts, subject.tokenizer, rules, limit=rules.limit)
    with subject.work(f"sample {task}", "prompts") as progress:
        found = sample_continuations(
            subject.model,
            [prompt.prefix_ids for prompt in prompts],
            prompt_keys=[prompt.id for prompt in prompts],
            decoding=Decoding(rule=rules.sampling, length=rules.continuation),
            vocabulary=token_count(subject.tokenizer),
            progress=progress,
        )
    samples = [s for p, c in zip(prompts, found, strict=True) for s in make_samples(p, c, subject.tokenizer)]
    write_samples(folder / SAMPLES, samples)
    (folder / "first_prompt_ids.json").write_text(f"{first_ids(prompts)}\n")
