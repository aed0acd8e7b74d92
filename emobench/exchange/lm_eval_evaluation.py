"""A results file of lm-evaluation-harness, with its samples, as an Evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from emobench.data.sampling_units import joined_units
from emobench.exchange.evaluation import Evaluation, Measured, Window, by_content, renamed, tasks_below
from emobench.exchange.json_files import mapping
from emobench.exchange.lm_eval_entry import interval
from emobench.exchange.lm_eval_model import model_name, precision, variant, window
from emobench.exchange.lm_eval_results import ROLLING, ResultsFile
from emobench.exchange.lm_eval_samples import Samples, read_samples
from emobench.leaderboard.run_files import Recorded
from emobench.tasks.lm_eval_numbers import NUMBERED, gives, task_name

T = TypeVar("T")
Names: TypeAlias = Mapping[str, Mapping[str, str]]
"""Task -> example as `read_samples` names it -> its name in an Evaluation."""
_SHOWN = {"shots": "n-shot", "chat": "chat template", "system": "system instruction"}
NO_SAMPLES = "evaluate with --log_samples"
NO_MEAN = "it is no mean of its examples"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Of a function that older files name by its place in memory."""


def lm_eval_evaluation(file: ResultsFile) -> Evaluation:
    """Return what a results file and the samples next to it say. Raises DataError for a line that is no sample."""
    samples = read_samples(file)
    names = {task: by_content(contents) for task, contents in samples.contents.items()}
    own = {metric: renamed(one, names[metric.partition("/")[0]]) for metric, one in samples.examples.items()}
    examples = {**own, **dict(_of_groups(file, samples, names))}
    numbers = dict(_numbers(file, {task: len(found) for task, found in names.items()}))
    file.require_numbers()
    why = NO_MEAN if samples.contents else NO_SAMPLES
    chat = file.data.get("chat_template_sha")
    return Evaluation(
        path=file.path,
        format="lm-eval",
        harness="lm-eval",
        version=file.text("lm_eval_version"),
        model=model_name(file.data),
        variant=variant(file.data),
        numbers=numbers,
        examples=examples,
        without={name: why for name in numbers if name not in examples},
        prompts=_renamed(samples.prompts, names),
        targets=_renamed(samples.targets, names),
        template=str(chat) if chat else None,
        windows={task_name(task): _window(file, task) for task in file.results},
        precision=precision(file.data),
        rules={task_name(task): _rules(file, task) for task in file.results},
        members={task_name(task): tuple(map(task_name, file.members(task))) for task in file.results},
    )


def _window(file: ResultsFile, task: str) -> Window:
    tokens, chosen = window(file.data)
    rolling = mapping(file.mapping("configs").get(task)).get("output_type") == ROLLING
    return Window(tokens, chosen or rolling)


def _numbers(file: ResultsFile, counts: Mapping[str, int]) -> Iterator[tuple[str, Measured]]:
    for name, one in file.numbers().items():
        if one.value is not None:
            yield (
                name,
                Measured(
                    value=one.value,
                    unit=one.unit,
                    higher_is_better=file.higher_is_better(one),
                    n=file.examples(one) or counts.get(task_name(one.task)),
                    interval=interval(one, one.value),
                ),
            )


def _renamed(digests: Mapping[str, Mapping[str, str]], names: Names) -> dict[str, dict[str, str]]:
    return {task: {names[task][example]: one for example, one in of.items()} for task, of in digests.items()}


def _of_groups(file: ResultsFile, samples: Samples, names: Names) -> Iterator[tuple[str, Recorded]]:
    """Yield the examples of all tasks of a group, for each of its numbers that is their mean.

    Tasks may ask about the same documents, each in a prompt of its own: these are one unit.
    """
    members = {name: file.members(name) for name in file.mapping("group_subtasks")}
    for name, one in file.numbers().items():
        tasks = [task for task in tasks_below(members, one.task) if not members.get(task)]
        found = {task_name(task): samples.examples.get(f"{task_name(task)}/{one.shown}") for task in tasks}
        pooled = Recorded()
        for task, of in found.items():
            for example, value in (of.examples if of else {}).items():
                pooled.examples[f"{task}:{names[task][example]}"] = value
        if all(found.values()) and gives(one, pooled.examples):
            own = {task: _numbered_of(task, samples.named[task]) for task in found}
            contents, named = _pooled(samples.inputs, names, found), _pooled(own, names, found)
            yield name, Recorded(pooled.examples, joined_units(contents, named))


def _numbered_of(task: str, units: Mapping[str, str]) -> dict[str, str]:
    """Return the units of a task, with the task in the names of passages that have only a number."""
    return {example: f"{task}:{unit}" if unit.startswith(NUMBERED) else unit for example, unit in units.items()}


def _pooled(by_task: Mapping[str, Mapping[str, T]], names: Names, tasks: Iterable[str]) -> dict[str, T]:
    """Return what several tasks' examples have under the names of a group's examples."""
    return {f"{task}:{names[task][example]}": one for task in tasks for example, one in by_task[task].items()}


def _rules(file: ResultsFile, task: str) -> dict[str, Any]:
    """Return what decides a task's numbers, flat and under names for people.

    Of a chat template it is whether there is one, and how it shows the examples.
    """
    facts = file.facts(task)
    config = {f"its {key}": _plain(value) for key, value in facts.pop("config").items() if value is not None}
    arguments = {f"model argument {key}": value for key, value in facts.pop("arguments", {}).items()}
    for name in ("members", "window"):  # which are compared one by one
        facts.pop(name, None)
    if facts["chat"]:
        _, as_turns = facts["chat"]
        facts["chat"] = f"applied, examples as turns: {as_turns}"
    return {_SHOWN.get(name, name): _plain(value) for name, value in facts.items()} | config | arguments


def _plain(value: Any) -> Any:
    return _ADDRESS.sub("", value) if isinstance(value, str) else value
