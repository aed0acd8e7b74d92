"""Prompts to samples on disk, for tasks of kind `generation`; an interrupted attempt is continued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from emobench.data.texts import Texts
from emobench.evaluation.generation.decoding import Decoding
from emobench.evaluation.generation.prompts import Prompt, first_ids, select_prompts
from emobench.evaluation.generation.samples import drop_torn_line, make_samples, read_samples, write_samples
from emobench.evaluation.generation.sampling import iter_continuations
from emobench.evaluation.kinds import Subject
from emobench.models.head import token_count
from emobench.tasks.generation import GenerationProtocol, Sampling

SAMPLES = "samples.jsonl"
PROMPTS = "prompts.json"
"""How many texts gave prompts, and why the others did not (see Selection.to_json)."""


def generate_samples(subject: Subject, task: str, rules: GenerationProtocol, texts: Texts, folder: Path) -> None:
    """Write the samples of all prompts into `folder`, which may hold those of an interrupted attempt.

    Batches are appended as they end, and put in the order of the prompts when all are there: the file is the same,
    byte by byte, as that of an undisturbed run.
    """
    chosen = select_prompts(texts.texts, subject.tokenizer, rules, limit=rules.limit)
    (folder / PROMPTS).write_text(chosen.to_json())
    (folder / "first_prompt_ids.json").write_text(f"{first_ids(chosen.prompts)}\n")
    _sample(subject, f"sample {task}: {chosen}", rules, chosen.prompts, folder / SAMPLES)
    _put_in_order(folder / SAMPLES, chosen.prompts, rules.sampling)


def _sample(subject: Subject, title: str, rules: GenerationProtocol, prompts: list[Prompt], path: Path) -> None:
    """Append the samples of the prompts that have none yet."""
    done = _done(path, prompts, rules.sampling)
    with subject.work(title, "prompts") as progress:
        for batch in iter_continuations(
            subject.model,
            [prompt.prefix_ids for prompt in prompts],
            prompt_keys=[prompt.id for prompt in prompts],
            decoding=Decoding(rule=rules.sampling, length=rules.continuation),
            vocabulary=token_count(subject.tokenizer),
            done=frozenset(done),
        ):
            new = [(index, found) for index, found in batch if index not in done]
            made = [sample for i, found in new for sample in make_samples(prompts[i], found, subject.tokenizer)]
            write_samples(path, made, append=True)
            done.update(index for index, _ in new)
            progress(len(done), len(prompts))


def _done(path: Path, prompts: Sequence[Prompt], rule: Sampling) -> set[int]:
    """Return the indices of the prompts whose samples are all in the file of an interrupted attempt."""
    if not path.exists():
        return set()
    drop_torn_line(path)
    counts = Counter(prompt_id for prompt_id, _ in {(s.prompt_id, s.sample) for s in read_samples(path)})
    return {index for index, prompt in enumerate(prompts) if counts[prompt.id] == rule.samples}


def _put_in_order(path: Path, prompts: Sequence[Prompt], rule: Sampling) -> None:
    found = {(sample.prompt_id, sample.sample): sample for sample in read_samples(path)}
    ordered = path.with_name(f"{path.name}.ordered")
    write_samples(ordered, (found[prompt.id, index] for prompt in prompts for index in range(rule.samples)))
    ordered.replace(path)
