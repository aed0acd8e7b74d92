"""Prompts to samples on disk, for tasks of kind `generation`; an interrupted attempt is continued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from emobench.data.texts import Texts
from emobench.inference.decoding.continuations import iter_continuations
from emobench.inference.decoding.request import Decoding
from emobench.kinds.generation.prompts import ContinuationPrompt, first_ids, select_prompts
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedSample, make_samples, parse_sample, sample_line, write_samples
from emobench.kinds.interface import Subject
from emobench.kinds.journal import UNFINISHED, Journal
from emobench.models.head import token_count

SAMPLES = "samples.jsonl"
PROMPTS = "prompts.json"
"""How many texts gave prompts, and why the others did not (see SelectedPrompts.to_json)."""


def generate_samples(subject: Subject, task: str, rules: GenerationProtocol, texts: Texts, folder: Path) -> None:
    """Write the samples of all prompts into `folder`, which may hold those of an interrupted attempt.

    Batches are kept in a journal as they end, and written in the order of the prompts when all are there: the file is
    the same, byte by byte, as that of an undisturbed run.
    """
    chosen = select_prompts(texts.texts, subject.tokenizer, rules, limit=rules.limit)
    (folder / PROMPTS).write_text(chosen.to_json())
    (folder / "first_prompt_ids.json").write_text(f"{first_ids(chosen.prompts)}\n")
    journal = Journal(folder / UNFINISHED)
    made: dict[tuple[str, int], GeneratedSample] = {}
    for line in journal.read():
        sample = parse_sample(line, UNFINISHED)
        made[sample.prompt_id, sample.sample] = sample
    counts = Counter(prompt for prompt, _ in made)
    done = {index for index, prompt in enumerate(chosen.prompts) if counts[prompt.id] == rules.sampling.samples}
    for sample in _sampled(subject, f"sample {task}: {chosen}", rules, chosen.prompts, done, journal):
        made[sample.prompt_id, sample.sample] = sample
    ordered = product([prompt.id for prompt in chosen.prompts], range(rules.sampling.samples))
    write_samples(folder / SAMPLES, (made[key] for key in ordered))


def _sampled(
    subject: Subject,
    title: str,
    rules: GenerationProtocol,
    prompts: list[ContinuationPrompt],
    done: set[int],
    journal: Journal,
) -> Iterator[GeneratedSample]:
    """Yield the samples of the prompts that are not done, after adding them to the journal, a batch at a time."""
    with subject.work(title, "prompts") as progress:
        for batch in iter_continuations(
            subject.files or subject.model,
            [prompt.prefix_ids for prompt in prompts],
            prompt_keys=[prompt.id for prompt in prompts],
            decoding=Decoding(rule=rules.sampling, length=rules.continuation),
            vocabulary=token_count(subject.tokenizer),
            done=frozenset(done),
        ):
            made: list[GeneratedSample] = []
            for index, continuations in batch:
                if index not in done:
                    made += make_samples(prompts[index], continuations, subject.tokenizer)
            journal.append(map(sample_line, made))
            yield from made
            done.update(index for index, _ in batch)
            progress(len(done), len(prompts))
