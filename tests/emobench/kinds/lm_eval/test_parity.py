"""Accuracies and log-likelihoods are those of lm_eval.simple_evaluate, called by itself on its own data."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.inference.scoring.scorer import TOKEN_BUDGET
from emobench.kinds.interface import Subject
from emobench.kinds.lm_eval import evaluate as kind
from emobench.kinds.lm_eval.kind import named_task
from emobench.models.device import LoadOptions

MMLU = "mmlu/default"


def directly(models: tuple[Any, Any], task: str, folders: list[Path], **options: Any) -> Any:
    """Return what lm-eval says when it is called as its documentation does."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    model, tokenizer = models
    lm = HFLM(pretrained=model, tokenizer=copy.deepcopy(tokenizer), batch_size=8)
    default = Path(lm_eval.__file__).parent / "tasks" / MMLU
    manager = TaskManager(include_path=[default, *folders], include_defaults=False)
    return lm_eval.simple_evaluate(model=lm, tasks=[task], task_manager=manager, bootstrap_iters=0, **options)


def wrapped(folder: Path, group: str, data: Path) -> Path:
    """Write a group that gives another group its data, as lm-eval's own YAML can."""
    text = f"group: w_{group}\ntask: [{{group: {group}, dataset_path: {data}}}]\n"
    (folder / "wrapped.yaml").write_text(text)
    return folder


def assert_alike(found: list[Any], expected: list[Any], engine: str) -> None:
    """The values of `lm-eval` are its own bit for bit (the same batches); those of `auto` are so up to rounding."""
    tolerance = 0 if engine == "lm-eval" else 1e-4
    for one, other in zip(likelihoods(found), likelihoods(expected), strict=True):
        assert one == pytest.approx(other, abs=tolerance, rel=0)
    assert [[flag for _, flag in row["filtered_resps"]] for row in found] == [
        [flag for _, flag in row["filtered_resps"]] for row in expected
    ]


def likelihoods(rows: list[Any]) -> list[list[float]]:
    return [[value for value, _ in row["filtered_resps"]] for row in rows]


def kept_rows(folder: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for line in (folder / "samples.jsonl").read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["task"], []).append(row)
    return found


@pytest.mark.parametrize("engine", ["auto", "lm-eval"])
def test_a_group_on_mmlu_data(
    byte_model: Any, mmlu_folder: Path, own_tasks: Path, tmp_path_factory: Any, evaluated: Any, engine: str
) -> None:
    rules = {"include": str(own_tasks), "data": str(mmlu_folder), "num_fewshot": 3, "engine": engine}
    scored, data, folder = evaluated("own_three", **rules)
    place = wrapped(tmp_path_factory.mktemp("w"), "own_three", mmlu_folder)
    expected = directly(byte_model, "w_own_three", [own_tasks, place], num_fewshot=3)

    rows = kept_rows(folder)
    assert set(rows) == {"mmlu_anatomy", "mmlu_astronomy", "mmlu_virology"}
    for name, own in rows.items():
        assert_alike(own, expected["samples"][name], engine)
        assert [r["prompt_hash"] for r in own] == [r["prompt_hash"] for r in expected["samples"][name]]
    score = scored.scores["acc"]
    assert list(scored.scores) == ["acc"]
    assert score.value == expected["results"]["own_three"]["acc,none"]
    assert (score.n, score.unit, score.higher_is_better, score.aggregate) == (20, "fraction", True, "mean")
    answers = {values.index(max(values)) for own in rows.values() for values in likelihoods(own)}
    assert len(answers) > 1  # the model's answers vary, so that equal ones say something
    assert len(data) == 20
    assert sum(value for value, _ in score.examples.values()) / 20 == pytest.approx(score.value)


def test_prompts_in_a_chat_template(
    byte_model: Any, mmlu_folder: Path, own_tasks: Path, tmp_path_factory: Any, evaluated: Callable[..., Any]
) -> None:
    model, tokenizer = byte_model[0], copy.deepcopy(byte_model[1])
    turns = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
    tokenizer.chat_template = turns + "{% if add_generation_prompt %}[assistant] {% endif %}"
    rules = {"include": str(own_tasks), "data": str(mmlu_folder), "num_fewshot": 1, "engine": "lm-eval"}
    scored, _, folder = evaluated("own_three", models=(model, tokenizer), chat_template=True, **rules)
    place = wrapped(tmp_path_factory.mktemp("w"), "own_three", mmlu_folder)
    options = {"num_fewshot": 1, "apply_chat_template": True, "fewshot_as_multiturn": True}
    expected = directly((model, tokenizer), "w_own_three", [own_tasks, place], **options)
    for name, own in kept_rows(folder).items():
        assert_alike(own, expected["samples"][name], "lm-eval")
        assert [r["prompt_hash"] for r in own] == [r["prompt_hash"] for r in expected["samples"][name]]
    assert scored.scores["acc"].value == expected["results"]["own_three"]["acc,none"]
    prompts = json.loads((folder / "samples.jsonl").read_text().splitlines()[0])["arguments"]
    assert str(prompts).count("[user]") == str(prompts).count("[assistant]") > 0


def test_a_chat_template_is_another_protocol_and_needs_one(byte_model: Any) -> None:
    plain, chat = named_task("mmlu"), named_task("mmlu", {"chat_template": True})
    assert "chat_template" not in plain.rules
    assert plain.protocol_id != chat.protocol_id
    known: Any = SimpleNamespace(tokenizer=byte_model[1], name="bytes", context=None, options=LoadOptions(device="cpu"))
    kind.check(plain, None, known)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the tokenizer of bytes has no chat template"):
        kind.check(chat, None, known)  # type: ignore[arg-type]


def test_a_group_that_weighs_its_tasks_alike(mmlu_folder: Path, own_tasks: Path, evaluated: Callable[..., Any]) -> None:
    scored, _, folder = evaluated("own_alike", include=str(own_tasks), data=str(mmlu_folder))
    by_task = {name: [row["acc"] for row in rows] for name, rows in kept_rows(folder).items()}
    means = [sum(values) / len(values) for values in by_task.values()]
    assert len(set(means)) == 2
    score = scored.scores["acc"]
    assert score.value == pytest.approx(sum(means) / 2)
    total = sum(weight for _, weight in score.examples.values())
    assert sum(v * w for v, w in score.examples.values()) / total == pytest.approx(score.value)


@pytest.mark.parametrize("engine", ["auto", "lm-eval"])
def test_a_task_of_ones_own(byte_model: Any, own_tasks: Path, evaluated: Callable[..., Any], engine: str) -> None:
    scored, _, folder = evaluated("own_choice", include=str(own_tasks), engine=engine)
    expected = directly(byte_model, "own_choice", [own_tasks])
    assert_alike(kept_rows(folder)["own_choice"], expected["samples"]["own_choice"], engine)
    for metric in ("acc", "acc_norm", "f1"):
        assert scored.scores[metric].value == expected["results"]["own_choice"][f"{metric},none"]
    assert scored.scores["acc_norm"].examples is not None
    assert scored.scores["f1"].examples is None  # of a corpus, no mean of examples
    assert scored.scores["f1"].aggregate == "corpus"


def test_generated_answers_and_perplexities(byte_model: Any, own_tasks: Path, evaluated: Callable[..., Any]) -> None:
    scored, _, folder = evaluated("own_free", include=str(own_tasks))
    expected = directly(byte_model, "own_free", [own_tasks])
    assert scored.scores["exact_match,strict"].value == expected["results"]["own_free"]["exact_match,strict"]
    texts = [row["resps"] for row in kept_rows(folder)["own_free"]]
    assert texts == [row["resps"] for row in expected["samples"]["own_free"]]

    scored, _, _ = evaluated("own_text", include=str(own_tasks))
    expected = directly(byte_model, "own_text", [own_tasks])
    for metric, unit in (("word_perplexity", "perplexity"), ("bits_per_byte", "bits per byte")):
        score = scored.scores[metric]
        assert (score.value, score.unit) == (pytest.approx(expected["results"]["own_text"][f"{metric},none"]), unit)
        assert score.examples is not None


def test_twice_in_one_process_is_the_same(mmlu_folder: Path, own_tasks: Path, subject: Subject, tmp_path: Path) -> None:
    """lm-eval's tasks hold state, and the models of one run share them; random numbers go on as if nothing was."""
    import random

    import numpy as np
    import torch

    task = named_task("own_choice", {"include": str(own_tasks), "num_fewshot": 3, "limit": 4})
    data = kind.load(task, data_dirs=(), offline=True)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state()  # noqa: NPY002
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        kind.generate(subject, task, data, tmp_path / name)
    one, two = ((tmp_path / name / "samples.jsonl").read_text() for name in ("one", "two"))
    assert one == two
    assert len(one.splitlines()) == 4
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.random.get_rng_state(), before[2])
    assert subject.tokenizer.pad_token is None  # lm-eval gave one to its copy


def forwards(subject: Subject, work: Callable[[], None], stop: int | None = None) -> int:
    """Return how often the model was called, by work that ends as Ctrl-C ends it where the calls reach `stop`."""
    calls: list[None] = []

    def count(*_: Any) -> None:
        calls.append(None)
        if len(calls) == stop:
            raise KeyboardInterrupt

    handle = subject.model.base_model.register_forward_pre_hook(count)
    try:
        with pytest.raises(KeyboardInterrupt) if stop else nullcontext():
            work()
    finally:
        handle.remove()
    return len(calls)


def test_an_interrupted_evaluation_goes_on(
    own_tasks: Path, mmlu_folder: Path, subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is computed once, and is that of an evaluation without an interruption, bit for bit."""
    monkeypatch.setattr("emobench.kinds.lm_eval.model.BATCHES", 2)
    monkeypatch.setitem(TOKEN_BUDGET, "cpu", 200)
    rules = {"include": str(own_tasks), "data": str(mmlu_folder), "num_fewshot": 1, "batch": 2}
    task = named_task("own_three", rules)
    data = kind.load(task, data_dirs=(), offline=True)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    batches = forwards(subject, lambda: kind.generate(subject, task, data, whole))
    for _ in range(2):
        forwards(subject, lambda: kind.generate(subject, task, data, broken), stop=18)
        with (broken / "unfinished.jsonl").open("a") as file:
            file.write('{"requests": "1')  # a line that was not finished
    # Each time, at least the first two batches were a piece that is kept.
    assert forwards(subject, lambda: kind.generate(subject, task, data, broken)) <= batches - 4
    assert batches > 18
    assert sorted(path.name for path in broken.iterdir()) == ["results.json", "samples.jsonl", "unfinished.jsonl"]
    assert (whole / "samples.jsonl").read_text() == (broken / "samples.jsonl").read_text()


@pytest.mark.slow
def test_mmlu_itself_with_a_trained_model(
    real_files: Path, real_model: Path, evaluated: Callable[..., Any], tmp_path_factory: Any
) -> None:
    """All 57 subjects of `mmlu`; 18 hold questions of MMLU, the others borrow some."""
    from emobench.models.catalog import ModelSource
    from emobench.models.load import load_model

    data = mmlu_like(real_files, tmp_path_factory.mktemp("mmlu"))
    source = ModelSource("base-en-7m", str(real_model), None, "local")
    loaded = load_model(source, LoadOptions())
    models = loaded.model, loaded.tokenizer
    scored, _, folder = evaluated("mmlu", models, data=str(data), num_fewshot=2)
    place = wrapped(tmp_path_factory.mktemp("w"), "mmlu", data)
    expected = directly(models, "w_mmlu", [place], num_fewshot=2)
    for name, rows in kept_rows(folder).items():
        assert_alike(rows, expected["samples"][name], "auto")
    assert list(scored.scores) == ["acc"]
    assert scored.scores["acc"].value == expected["results"]["mmlu"]["acc,none"]
    assert scored.scores["acc"].n == 57


def mmlu_like(real_files: Path, folder: Path) -> Path:
    """Write all subjects of MMLU as Parquet with a README: two questions of dev and one of test each."""
    import lm_eval
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: dict[str, dict[str, list[Any]]] = {}
    for split, count in (("dev", 2), ("test", 1)):
        for line in (real_files / "data" / "icl" / f"mmlu_stem.{split}.jsonl").read_text().splitlines():
            row = json.loads(line)
            part = rows.setdefault(row["subject"], {}).setdefault(split, [])
            if len(part) < count:
                part.append(row)
    names = sorted((Path(lm_eval.__file__).parent / "tasks" / MMLU).glob("mmlu_*.yaml"))
    lines = ["---", "configs:"]
    for name in (path.stem.removeprefix("mmlu_") for path in names):
        lines += [f"- config_name: {name}", "  data_files:"]
        (folder / name).mkdir()
        for split, part in rows.get(name, rows["astronomy"]).items():
            pq.write_table(pa.Table.from_pylist(part), folder / name / f"{split}-0.parquet")
            lines.append(f"  - {{split: {split}, path: {name}/{split}-*.parquet}}")
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))
    return folder
