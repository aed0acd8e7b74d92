"""Which numbers of lm-eval become metrics, with which examples."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lm_eval
import pytest

from emobench.core.errors import ConfigError
from emobench.kinds.interface import Subject
from emobench.kinds.lm_eval import evaluate as kind
from emobench.kinds.lm_eval.kind import LmEvalProtocol, named_task
from emobench.kinds.lm_eval.model import MemoryModel
from emobench.models.device import LoadOptions
from emobench.registry import task_files
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import task_of


def test_a_group_without_numbers_of_its_own_gives_those_of_its_tasks(
    mmlu_folder: Path, own_tasks: Path, evaluated: Callable[..., Any], tmp_path: Path
) -> None:
    text = "group: own_both\ntask: [mmlu_astronomy, own_alike]\n"
    (own := tmp_path / "own").mkdir()
    (own / "own_both.yaml").write_text(text)
    (own / "own_alike.yaml").write_text((own_tasks / "own_alike.yaml").read_text())
    scored, _, folder = evaluated("own_both", include=str(own), data=str(mmlu_folder), limit=4)
    assert list(scored.scores) == ["mmlu_astronomy/acc", "own_alike/acc"]
    assert scored.scores["own_alike/acc"].n == 8
    ids = set(scored.scores["own_alike/acc"].examples)
    rows = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    expected = {f"{r['task']}/{r['doc_id']}-{r['doc_hash'][:12]}" for r in rows if r["task"] != "mmlu_astronomy"}
    assert ids == expected


def test_what_a_reader_needs_to_repeat_it_is_kept(mmlu_folder: Path, evaluated: Callable[..., Any]) -> None:
    scored, _, folder = evaluated("mmlu_anatomy", data=str(mmlu_folder), num_fewshot=5, max_length=300)
    results = json.loads((folder / "results.json").read_text())
    assert results["n-shot"] == {"mmlu_anatomy": 5}
    assert results["versions"] == {"mmlu_anatomy": 1.0}
    assert results["config"]["use_cache"] is None
    assert results["configs"]["mmlu_anatomy"]["doc_to_target"] == "answer"
    # Bytes are tokens here: each prompt of five shots is longer than 300.
    assert results["emobench"]["prompts_cut"] == 9
    assert scored.scores["acc"].flags == ("9_prompts_cut_on_the_left",)


def test_an_answer_longer_than_the_model_reads(own_tasks: Path, subject: Subject, tmp_path: Path) -> None:
    task = named_task("own_choice", {"include": str(own_tasks), "max_length": 5})
    data = kind.load(task, data_dirs=(), offline=True)
    with pytest.raises(ConfigError, match="an answer has 10 tokens, but the model reads at most 5"):
        kind.generate(subject, task, data, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("context", "answer"), [((3,), ()), ((), (3,))])
def test_an_answer_without_tokens_or_context_is_refused(
    context: tuple[int, ...], answer: tuple[int, ...], subject: Subject, tmp_path: Path
) -> None:
    model = MemoryModel(subject, LmEvalProtocol(task="mine"), tmp_path / "kept.jsonl")
    requests = [(("a", "b"), [3, 4], [5]), (("a", ""), list(context), list(answer))]
    with pytest.raises(ConfigError, match=r"Task lm-eval:mine: .* has no token of its own"):
        model._loglikelihood_tokens(requests)


def test_a_name_of_lm_eval_in_a_suite_takes_the_settings_of_the_request() -> None:
    request = Request(suite="mmlu", settings={"lm_eval": {"num_fewshot": 3}}, limit=7)
    task = task_of(request, "lm-eval:hellaswag")
    assert task.protocol == LmEvalProtocol(task="hellaswag", num_fewshot=3, limit=7)
    assert task_of(Request(suite="mmlu"), "mmlu-lm-eval").protocol == LmEvalProtocol(task="mmlu", num_fewshot=5)


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        ("lm_eval: [mmlu]", ("lm-eval:mmlu",)),
        ("lm_eval: [mmlu, hellaswag]", ("lm-eval:mmlu", "lm-eval:hellaswag")),
        ("lm_eval: [mmlu], tasks: []", ("lm-eval:mmlu",)),
        ("lm_eval: [], tasks: [sst2]", ("sst2",)),
    ],
)
def test_a_run_of_a_suite_may_have_tasks_of_lm_eval_alone(given: str, tasks: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "own-suite.yaml"
    file.write_text(f"name: own-suite\nversion: 1\nruns: [{{recipe: lm-finetune, {given}}}]\n")
    (run,) = task_files.find_suite(str(file)).runs
    assert run.tasks == tasks


def test_a_longest_prompt_beyond_the_context(subject: Subject) -> None:
    task = named_task("mmlu", {"max_length": 2048})
    options = LoadOptions(device="cpu")
    model = SimpleNamespace(name="small", tokenizer=subject.tokenizer, context=1024, options=options)
    with pytest.raises(ConfigError, match="may have 2048 tokens, and small reads at most 1024"):
        kind.check(task, None, model)  # type: ignore[arg-type]


@pytest.mark.slow
def test_through_the_command_line(
    command: Callable[..., Any], byte_model: Any, questions: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """A suite names a group of lm-eval; its entry has the metric, what identifies it, and where its examples are."""
    for part in byte_model:
        part.save_pretrained(tmp_path / "model")
    for path in (Path(lm_eval.__file__).parent / "tasks/mmlu/default").glob("mmlu_*.yaml"):
        name = path.stem.removeprefix("mmlu_")
        (folder := tmp_path / "mmlu" / name).mkdir(parents=True)
        for split, rows in (("dev", questions(name, 5)), ("test", questions(f"{name} test", 2))):
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("--model", tmp_path / "model", "--suite", "mmlu", "--limit", 1, "--set", "tasks=mmlu-lm-eval")
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--offline", "--quiet", "--json")
    places = (*places, "--set", "lm_eval.num_fewshot=1")
    data = ("--set", f"lm_eval.data={tmp_path / 'mmlu'}")
    first, second = (command("evaluate", *given, *places, *data) for _ in range(2))
    assert (first.code, first.err) == (0, "")
    entry = first.json["entries"][0]
    assert second.json["entries"][0]["id"] == entry["id"]
    assert list(entry["metrics"]) == ["mmlu-lm-eval/acc"]
    assert entry["metrics"]["mmlu-lm-eval/acc"]["n"] == 57
    assert entry["provenance"]["data"]["definition of mmlu-lm-eval"].endswith(f"(lm-eval {version('lm-eval')})")
    assert entry["provenance"]["packages"]["lm-eval"] == version("lm-eval")
    samples = tmp_path / "runs" / entry["runs"][0]["samples"][0]["path"]
    assert len(samples.read_text().splitlines()) == 57
    wrong = command("evaluate", *given, *places, "--set", "lm_eval.data=nowhere")
    assert (wrong.code, "lm_eval.data=nowhere: there is no such folder" in wrong.err) == (2, True)
