"""Tasks of kind `icl`, where data and models are read: loading, checks, losses of prompts, and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from emobench.data.labelled import LabelledData, load_labelled, sampling_units
from emobench.inference.scoring.scorer import PromptScorer, context_of
from emobench.kinds.cost import Cost
from emobench.kinds.icl.answers import icl_scores
from emobench.kinds.icl.cost import icl_cost
from emobench.kinds.icl.examples import check_pool, duplicate_flags, questions_of
from emobench.kinds.icl.losses import ExampleLosses, parse_sample, read_samples, sample_line, write_samples
from emobench.kinds.icl.prompts import Draft, ExamplePrompts, check_boundaries, make_prompts, room
from emobench.kinds.icl.retrieval.shots import find_shots
from emobench.kinds.icl.rules import FIELD, LABEL, IclProtocol
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import UNFINISHED, Journal, require_count
from emobench.models.model import Model
from emobench.tasks.spec import Task

SAMPLES, FIRST_IDS = "samples.jsonl", "first_prompt_ids.json"
LONGEST = 20
"""Examples whose prompts without shots are tried when a run is planned: those with the most characters."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> LabelledData:
    assert task.dataset is not None
    return load_labelled(task.dataset, data_dirs=data_dirs, offline=offline)


def cost(task: Task, data: LabelledData | None, model: Model) -> Cost:
    assert task.dataset is not None
    return icl_cost(task.protocol_as(IclProtocol), task.dataset, data, model)


def check(task: Task, data: LabelledData, model: Model) -> None:
    """Check the pool's size, and that the longest prompts fit without shots; the tokenizer's BOS, too."""
    rules = task.protocol_as(IclProtocol)
    if rules.engine == "openicl":
        _openicl().check_openicl(task)
    check_pool(task, data)
    longest = sorted(questions_of(rules, data), key=lambda e: -sum(map(len, e.fields.values())))[:LONGEST]
    drafts = [Draft(example=example, shots=()) for example in longest]
    prompts = make_prompts(drafts, model.tokenizer, rules, room(rules, model.context), task=task.name)
    if rules.scorer != "prompt":
        check_boundaries(prompts, task.name, rules.texts)


def generate(subject: Subject, task: Task, data: LabelledData, folder: Path) -> None:
    """Write each example's losses, batch by batch; those that an interrupted attempt left are not made again."""
    rules = task.protocol_as(IclProtocol)
    drafts = drafts_of(subject, task, data)
    prompts = prompts_of(subject, task, drafts)
    (folder / FIRST_IDS).write_text(f"{list(prompts[0].tokens[0][:8])}\n")
    if rules.engine == "openicl":
        _openicl().run_openicl(subject, task, data, drafts, prompts, folder)
        return
    scorer = make_scorer(subject, rules, labels_only=rules.scorer != "prompt")
    journal = Journal(folder / UNFINISHED)
    done: dict[str, ExampleLosses] = {}
    for line in journal.read():
        sample = parse_sample(line, UNFINISHED)
        done[sample.id] = sample
    batches = list(scorer.batches(prompts))
    with subject.work(f"score {task.name}", "prompts") as progress:
        # The batches of all examples, whatever is finished: the same numbers as without an interruption.
        for batch in batches:
            if not all(prompts[i].id in done for i in batch):
                rows = score_prompts(scorer, subject, task, [(drafts[i], prompts[i]) for i in batch])
                journal.append(map(sample_line, rows))
                done.update({row.id: row for row in rows})
            progress(len(done), len(prompts))
    write_samples(folder / SAMPLES, [done[prompts[i].id] for i in chain.from_iterable(batches)])


def score(subject: Subject, task: Task, data: LabelledData, folder: Path) -> Scored:
    rules = task.protocol_as(IclProtocol)
    questions, samples = questions_of(rules, data), read_samples(folder / SAMPLES)
    require_count(folder / SAMPLES, "examples", len({sample.id for sample in samples}), len(questions))
    groups = {example.id: example.group for example in questions if example.group}
    scored = icl_scores(rules, samples, groups)
    flags = duplicate_flags(rules, data)
    units = sampling_units(questions)
    for name, value in scored.scores.items():
        scored.scores[name] = replace(value, flags=(*value.flags, *flags), units=units)
    return scored


def _openicl() -> Any:
    """Return the module of the engine `openicl`, which imports a package of its own."""
    from emobench.kinds.icl import openicl

    return openicl


def drafts_of(subject: Subject, task: Task, data: LabelledData) -> list[Draft]:
    """Return each test example with its shots."""
    rules = task.protocol_as(IclProtocol)
    shots_of = _openicl().openicl_shots if rules.engine == "openicl" else find_shots
    questions = zip(questions_of(rules, data), shots_of(subject, task, data), strict=True)
    return [Draft(example=example, shots=shots) for example, shots in questions]


def prompts_of(subject: Subject, task: Task, drafts: Sequence[Draft]) -> list[ExamplePrompts]:
    """Return the prompts of drafts, as the model gets them."""
    rules = task.protocol_as(IclProtocol)
    limit = room(rules, context_of(subject.model))
    with subject.work(f"tokenize {task.name}", "prompts") as progress:
        prompts = make_prompts(drafts, subject.tokenizer, rules, limit, task=task.name, progress=progress)
    if rules.scorer != "prompt":
        check_boundaries(prompts, task.name, rules.texts)
    return prompts


def make_scorer(subject: Subject, rules: IclProtocol, *, labels_only: bool) -> PromptScorer:
    """Return a scorer of prompts. A literal EOS is not scored, as in OpenICL, whose padding it is."""
    eos = subject.tokenizer.eos_token_id
    return PromptScorer(subject.model, rules.engine, unscored=eos, labels_only=labels_only)


def score_prompts(
    scorer: PromptScorer, subject: Subject, task: Task, batch: Sequence[tuple[Draft, ExamplePrompts]]
) -> list[ExampleLosses]:
    """Return the losses of one batch of `scorer.batches`."""
    rules = task.protocol_as(IclProtocol)
    losses = scorer.losses([prompt for _, prompt in batch])
    free = _content_free(scorer, subject, rules, batch, task.name)
    rows = []
    sizes = tuple(len(text.encode()) for text in rules.texts)
    for (draft, prompt), loss, nats in zip(batch, losses, free, strict=True):
        label_bytes = () if prompt.label_starts is None else sizes
        row = ExampleLosses(
            id=prompt.id,
            label=draft.example.label,
            shots=prompt.shots,
            dropped=prompt.dropped,
            cut=prompt.cut,
            label_bytes=label_bytes,
            content_free_nats=nats,
            prompt_nats=loss.prompt_nats,
            prompt_tokens=loss.prompt_tokens,
            label_nats=loss.label_nats,
            label_tokens=loss.label_tokens,
        )
        rows.append(row)
    return rows


def _content_free(
    scorer: PromptScorer, subject: Subject, rules: IclProtocol, batch: Sequence[tuple[Draft, ExamplePrompts]], task: str
) -> list[tuple[float, ...]]:
    """Return the labels' own losses behind content-free inputs, the mean over these; empty unless calibrated."""
    if rules.scorer != "calibrated":
        return [() for _ in batch]
    # The shots of the prompt itself; where it just fits and the content-free input is longer, that loses some more.
    limit = room(rules, context_of(subject.model))
    drafts = [replace(draft, shots=draft.shots[: len(prompt.shots)]) for draft, prompt in batch]
    by_text = []
    for text in rules.content_free:
        values = {name: text for name in FIELD.findall(rules.template) if name != LABEL}
        prompts = make_prompts(drafts, subject.tokenizer, rules, limit, task=task, values=values)
        by_text.append([losses.label_nats for losses in scorer.losses(prompts)])
    means = []
    for rows in zip(*by_text, strict=True):
        means.append(tuple(sum(nats) / len(nats) for nats in zip(*rows, strict=True)))
    return means
