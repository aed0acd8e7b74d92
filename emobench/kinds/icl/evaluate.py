"""Tasks of kind `icl`, where data and models are read: loading, estimates, checks, losses of prompts, and scores."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from emobench.core.settings import build
from emobench.data.labelled import Example, LabelledData, load_labelled, sampling_units
from emobench.inference.scoring.scorer import PromptScorer
from emobench.kinds.cost import Cost, least
from emobench.kinds.icl.answers import MEASURES, ExampleLosses, icl_scores
from emobench.kinds.icl.prompts import Draft, ExamplePrompts, check_boundaries, make_prompts
from emobench.kinds.icl.retrieval.shots import check_pool, duplicate_flags, find_shots, pool_of, questions_of
from emobench.kinds.icl.rules import FIELD, LABEL, IclProtocol
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import UNFINISHED, Journal, require_count
from emobench.kinds.rows import read_rows, row_line, write_rows
from emobench.kinds.views import TestSize
from emobench.models.head import context_of
from emobench.models.model import Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

SAMPLES, FIRST_IDS = "samples.jsonl", "first_prompt_ids.json"
LONGEST = 20
"""Examples whose prompts without shots are tried when a run is planned: those with the most characters."""
SAMPLE = 32
"""Examples that are tokenized to estimate the tokens of all."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> LabelledData:
    assert task.dataset is not None
    return load_labelled(task.dataset, data_dirs=data_dirs, offline=offline)


def metrics(task: Task) -> Mapping[str, Measure]:
    return {"accuracy": MEASURES["accuracy"]}


def test_size(task: Task, metric: str, data: LabelledData | None) -> TestSize:
    assert task.dataset is not None
    rules = task.protocol_as(IclProtocol)
    if data is not None:
        questions = questions_of(rules, data)
        units = sampling_units(questions)
        return TestSize(len(questions), len({units.get(example.id, example.id) for example in questions}))
    examples = least(rules.held_out or task.dataset.test.rows, rules.limit)
    if task.dataset.unit or task.dataset.group:
        return TestSize(examples, None)
    return TestSize(examples, examples)


def cost(task: Task, data: LabelledData | None, model: Model) -> Cost:
    """Return the tokens of one forward pass an example over its shared prefix and all labels, by the texts' bytes.

    That is prefix + the sum over labels of (suffix - 1); each label's whole prompt where the engine shares nothing.
    """
    assert task.dataset is not None
    rules = task.protocol_as(IclProtocol)
    source = task.dataset
    bytes_per_token = model.bytes_per_token
    if data is None:
        examples = least(rules.held_out or source.test.rows, rules.limit)
        shot: float | None = source.pool.text_bytes
        query = shot if rules.held_out else source.test.text_bytes
    else:
        questions = questions_of(rules, data)
        examples, shot, query = len(questions), _mean_bytes(pool_of(rules, data)), _mean_bytes(questions)
        if model.is_local:
            text = "\n".join(example.text(rules.query) for example in questions[:SAMPLE])
            tokens = model.tokenizer(text, verbose=False)["input_ids"]
            bytes_per_token = len(text.encode()) / max(len(tokens), 1)
    if examples is None or shot is None or query is None:
        return Cost(examples, None)
    before, _, after = rules.template.partition(f"{{{LABEL}}}")
    fixed = len(FIELD.sub("", before).encode())
    labels = [len((text + after).encode()) for text in rules.labels.values()]
    one_shot = fixed + shot + sum(labels) / len(labels) + len(rules.separator)
    size = len(FIELD.sub("", rules.header).encode()) + rules.shots * one_shot + fixed + query
    prefix = min(size / bytes_per_token, least(rules.max_length, model.context) or math.inf)
    suffixes = [label / bytes_per_token for label in labels]
    if rules.engine == "plain":
        per_example = prefix * len(suffixes) + sum(suffixes)
    else:
        per_example = prefix + sum(max(suffix - 1, 0) for suffix in suffixes)
    passes = 1 + len(rules.content_free) if rules.scorer == "calibrated" else 1
    return Cost(examples, round(examples * passes * per_example))


def _mean_bytes(examples: Sequence[Example]) -> float:
    texts = chain.from_iterable(example.fields.values() for example in examples)
    return sum(len(text.encode()) for text in texts) / max(len(examples), 1)


# Prompts and scores.


def check(task: Task, data: LabelledData, model: Model) -> None:
    """Check the pool's size, and that the longest prompts fit without shots; the tokenizer's BOS, too."""
    rules = task.protocol_as(IclProtocol)
    check_pool(task, data)
    longest = sorted(questions_of(rules, data), key=lambda e: -sum(map(len, e.fields.values())))[:LONGEST]
    drafts = [Draft(example=example, shots=()) for example in longest]
    prompts = make_prompts(drafts, model.tokenizer, rules, least(rules.max_length, model.context), task=task.name)
    if rules.scorer != "prompt":
        check_boundaries(prompts, task.name, rules.texts)


def generate(subject: Subject, task: Task, data: LabelledData, folder: Path) -> None:
    """Write each example's losses, batch by batch; those that an interrupted attempt left are not made again."""
    rules = task.protocol_as(IclProtocol)
    drafts = drafts_of(subject, task, data)
    prompts = prompts_of(subject, task, drafts)
    (folder / FIRST_IDS).write_text(f"{list(prompts[0].tokens[0][:8])}\n")
    scorer = make_scorer(subject, rules, labels_only=rules.scorer != "prompt")
    journal = Journal(folder / UNFINISHED)
    done = {}
    for line in journal.read():
        sample = build(ExampleLosses, json.loads(line), UNFINISHED)
        done[sample.id] = sample
    batches = list(scorer.batches(prompts))
    with subject.work(f"score {task.name}", "prompts") as progress:
        # The batches of all examples, whatever is finished: the same numbers as without an interruption.
        for batch in batches:
            pairs = [(drafts[i], prompts[i]) for i in batch]
            if not all(prompt.id in done for _, prompt in pairs):
                rows = score_prompts(scorer, subject, task, pairs)
                journal.append(map(row_line, rows))
                for row in rows:
                    done[row.id] = row
            progress(len(done), len(prompts))
    in_order = []
    for i in chain.from_iterable(batches):
        in_order.append(done[prompts[i].id])
    write_rows(folder / SAMPLES, in_order)


def score(subject: Subject, task: Task, data: LabelledData, folder: Path) -> Scored:
    rules = task.protocol_as(IclProtocol)
    questions = questions_of(rules, data)
    samples = read_rows(ExampleLosses, folder / SAMPLES)
    answered = {sample.id for sample in samples}
    require_count(folder / SAMPLES, "examples", len(answered), len(questions))
    groups = {}
    for example in questions:
        if example.group:
            groups[example.id] = example.group
    scored = icl_scores(rules, samples, groups)
    flags = duplicate_flags(rules, data)
    units = sampling_units(questions)
    for name, value in scored.scores.items():
        scored.scores[name] = replace(value, flags=(*value.flags, *flags), units=units)
    return scored


def drafts_of(subject: Subject, task: Task, data: LabelledData) -> list[Draft]:
    """Return each test example with its shots."""
    questions = questions_of(task.protocol_as(IclProtocol), data)
    drafts = []
    for example, shots in zip(questions, find_shots(subject, task, data), strict=True):
        drafts.append(Draft(example=example, shots=shots))
    return drafts


def prompts_of(subject: Subject, task: Task, drafts: Sequence[Draft]) -> list[ExamplePrompts]:
    """Return the prompts of drafts, as the model gets them."""
    rules = task.protocol_as(IclProtocol)
    limit = least(rules.max_length, context_of(subject.model))
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
    free: list[tuple[float, ...]] = [()] * len(batch)
    if rules.scorer == "calibrated":
        free = _content_free(scorer, subject, rules, batch, task.name)
    sizes = [len(text.encode()) for text in rules.texts]
    rows = []
    for (draft, prompt), loss, nats in zip(batch, losses, free, strict=True):
        label_bytes: tuple[int, ...] = ()
        if prompt.label_starts is not None:
            label_bytes = tuple(sizes)
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
    """Return the labels' own losses behind content-free inputs, the mean over these."""
    # The shots of the prompt itself; where it just fits and the content-free input is longer, that loses some more.
    limit = least(rules.max_length, context_of(subject.model))
    drafts = []
    for draft, prompt in batch:
        kept = draft.shots[: len(prompt.shots)]
        drafts.append(replace(draft, shots=kept))
    totals = np.zeros((len(batch), len(rules.texts)))
    for text in rules.content_free:
        values = dict.fromkeys(FIELD.findall(rules.template), text)
        prompts = make_prompts(drafts, subject.tokenizer, rules, limit, task=task, values=values)
        totals += [losses.label_nats for losses in scorer.losses(prompts)]
    means = totals / len(rules.content_free)
    return list(map(tuple, means.tolist()))
