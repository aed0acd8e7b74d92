"""Tasks of kind `lm_eval`, where data and models are read: lm-evaluation-harness runs by itself on the model in memory.

Its caches stay off: they return the answers of other models and other prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from emobench.core.errors import ConfigError
from emobench.core.reading import json_rows
from emobench.inference.vllm.package import check_backend
from emobench.kinds.cost import Cost
from emobench.kinds.generation.evaluate import require_context
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import UNFINISHED, require_count
from emobench.kinds.lm_eval.data import LmEvalData, load_tasks
from emobench.kinds.lm_eval.kind import LmEvalProtocol
from emobench.kinds.lm_eval.model import check_generation, kept_random_states, lm_eval_model, quiet_lm_eval
from emobench.models.model import Model
from emobench.tasks.lm_eval_numbers import (
    LmEvalNumber,
    Values,
    example_id,
    example_values,
    gives,
    numbers_of,
    sample_contents,
    sampling_units,
)
from emobench.tasks.scores import Measure, Score
from emobench.tasks.spec import Task

SAMPLES, RESULTS = "samples.jsonl", "results.json"
Results = Mapping[str, Any]
"""What lm-eval gives, without the samples."""
Rows = Mapping[str, list[dict[str, Any]]]
"""The samples of each task."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> LmEvalData:
    """Read the task's data, built by lm-eval itself: what would fail after a training fails here."""
    return load_tasks(task.name, task.protocol_as(LmEvalProtocol), offline=offline)


def cost(task: Task, data: LmEvalData | None, model: Model) -> Cost:
    """Lm-eval alone knows its prompts, when it runs."""
    return Cost(None, None)


def check(task: Task, data: LmEvalData, model: Model) -> None:
    rules = task.protocol_as(LmEvalProtocol)
    check_backend(rules.backend, model, "lm_eval.backend")
    if rules.backend == "vllm":
        check_generation(task.name, data.generation)
    if rules.chat_template and not model.tokenizer.chat_template:
        raise ConfigError(
            f"Task {task.name}: the tokenizer of {model.name} has no chat template; take a chat model, or drop "
            "--set lm_eval.chat_template=true."
        )
    if rules.max_length is not None:
        require_context(task, model, rules.max_length, "a prompt", f"add --set lm_eval.max_length={model.context}")


def generate(subject: Subject, task: Task, data: LmEvalData, folder: Path) -> None:
    """Write lm-eval's results, and one line for each of its samples; goes on with an interrupted attempt's answers."""
    rules = task.protocol_as(LmEvalProtocol)
    with kept_random_states(), quiet_lm_eval(), lm_eval_model(subject, rules, folder / UNFINISHED) as model:
        evaluate: Any = simple_evaluate  # its decorator hides its parameters
        results = evaluate(
            model=model,
            tasks=list(data.built),
            task_manager=TaskManager(include_defaults=False),  # or it would index all there are: 14 s
            num_fewshot=rules.num_fewshot,
            limit=rules.limit,
            use_cache=None,
            cache_requests=False,
            apply_chat_template=rules.chat_template,
            fewshot_as_multiturn=rules.chat_template,
            log_samples=True,
            bootstrap_iters=0,  # the board computes its own intervals, from the examples
            random_seed=0,
            numpy_random_seed=1234,
            torch_random_seed=1234,
            fewshot_random_seed=1234,
        )
    assert results is not None, "lm-eval gives no results on ranks above 0, where nothing is evaluated"
    with (folder / SAMPLES).open("w", encoding="utf-8") as file:
        for name, rows in results["samples"].items():
            for row in rows:
                file.write(json.dumps(_json_safe({"task": name, **row}), ensure_ascii=False) + "\n")
    for name in ("samples", "pretty_env_info", "date"):
        results.pop(name, None)
    text = json.dumps(
        _json_safe({**results, "emobench": {"prompts_cut": len(model.cut)}}), indent=1, ensure_ascii=False
    )
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")


def score(subject: Subject, task: Task, data: LmEvalData, folder: Path) -> Scored:
    """Return the group's or task's own metrics; those of its parts only where it has none, under "<part>/<metric>"."""
    results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for _, row in json_rows(folder / SAMPLES):
        rows.setdefault(row["task"], []).append(row)
    for leaf, counts in results["n-samples"].items():
        documents = {row["doc_id"] for row in rows.get(leaf, ())}
        require_count(folder / SAMPLES, f"documents of {leaf}", len(documents), counts["effective"])
    name = task.protocol_as(LmEvalProtocol).task
    scored = Scored()
    for part in _parts(results, name):
        for number in numbers_of(part, results["results"][part]):
            shown = number.shown if part == name else number.name
            if number.value is None:
                scored.missing[shown] = f"lm-eval has {number.text}"
            else:
                scored.scores[shown] = _score(number, results, rows)
    return scored


def _score(number: LmEvalNumber, results: Results, rows: Rows) -> Score:
    assert number.value is not None
    leaves = [leaf for leaf in _leaves(results, number.task) if number.key in results["results"][leaf]]
    alone = leaves == [number.task]
    better, documents, contents = set[bool | None](), {}, {}
    for leaf in leaves:
        better.add(results["higher_is_better"].get(leaf, {}).get(number.metric))  # lm-eval has it for tasks alone
        for row in rows.get(leaf, ()):
            example = example_id(row) if alone else f"{leaf}/{example_id(row)}"
            documents[example], contents[example] = row.get("doc"), sample_contents(row)
    examples = _examples(number, leaves, results, rows)
    aggregate = "corpus"
    n = sum(results["n-samples"][leaf]["effective"] for leaf in leaves)
    if examples is not None:
        aggregate = "exp_mean" if number.unit == "perplexity" else "mean"
        n = len(examples) or n
    cut = results["emobench"]["prompts_cut"]
    flags = (f"{cut}_prompts_cut_on_the_left",) if cut else ()
    measure = Measure(better.pop() if len(better) == 1 else None, number.unit)
    units = sampling_units(documents, contents)
    return measure.score(number.value, n, flags=flags, examples=examples, units=units, aggregate=aggregate)


def _examples(number: LmEvalNumber, leaves: Sequence[str], results: Results, rows: Rows) -> Values | None:
    """Return the values of all examples, weighted so that their mean is the number; None where none gives it."""
    parts = {}
    for leaf in leaves:
        own = next(m for m in numbers_of(leaf, results["results"][leaf]) if m.key == number.key)
        given = {}
        for row in rows.get(leaf, ()):
            if row["filter"] == number.filter and number.metric in row:
                given[example_id(row)] = row[number.metric]
        values = example_values(own, given)
        if values is None or leaf == number.task:
            return values
        parts[leaf] = values
    # A group weighs its tasks by their examples, or each the same.
    for alike in (False, True):
        joined = {}
        for leaf, values in parts.items():
            size = len(values) if alike else 1
            for example, (value, weight) in values.items():
                joined[f"{leaf}/{example}"] = (value, weight / size)
        if gives(number, joined):
            return joined
    return None


def _parts(results: Results, name: str) -> list[str]:
    """Return the tasks and groups with numbers: a name, or else the nearest of its parts; for a tag all."""
    known = results["results"]
    groups = results["group_subtasks"]
    with_numbers = [part for part in known if next(numbers_of(part, known[part]), None)]
    if name not in known and name not in groups:
        return with_numbers
    if name in with_numbers:
        return [name]
    return [part for child in groups.get(name, ()) for part in _parts(results, child)]


def _leaves(results: Results, name: str) -> list[str]:
    members = results["group_subtasks"].get(name) or ()
    return [leaf for member in members for leaf in _leaves(results, member)] or [name]


def _json_safe(value: Any) -> Any:
    """Return a value as JSON has it: NaN and infinity as null, anything unknown as text."""

    def plain(one: Any) -> Any:
        if isinstance(one, (Mapping, set)):
            return dict(one) if isinstance(one, Mapping) else list(one)
        return one.item() if getattr(one, "ndim", None) == 0 else str(one)

    return json.loads(json.dumps(value, default=plain), parse_constant=lambda _: None)
