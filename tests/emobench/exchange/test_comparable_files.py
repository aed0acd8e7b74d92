"""What keeps two result files of lm-evaluation-harness from being compared, what is only reported, and rows' names."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.lm_eval import ModelArguments
from emobench.exchange.result_files import ImportedModel, compare_files, find_results, import_results, read_evaluation
from emobench.leaderboard.comparable import comparison_key, differences
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.leaderboard.stats.random_effects import over_items
from emobench.leaderboard.store import Leaderboard

STAMP = "2026-01-01T00-00-00"
N = 60


def evaluated(root: Path, name: str, args: Any = None, **changes: Any) -> str:
    """Write results of one model: `acc` is tested by McNemar, and the perplexity of a rolling task by a paired t."""
    draw = random.Random(name)
    folder = root / name
    folder.mkdir(parents=True)
    accs = [float(draw.random() < 0.5) for _ in range(N)]
    nats = [[-5 * draw.uniform(2, 3), 5] for _ in range(N)]
    own = changes.pop("own_prompts", "")
    for task, metric, values in (("quiz", "acc", accs), ("text", "word_perplexity", nats)):
        rows = []
        for i, value in enumerate(values):
            row = {"doc_id": i, "doc": {"q": f"{task} {i}"}, "doc_hash": f"{task} {i}", "target_hash": f"t{i}"}
            rows.append({**row, "prompt_hash": f"p{i}{own}", "filter": "none", "metrics": [metric], metric: value})
        changes.get("of_rows", lambda rows: None)(rows)
        (folder / f"samples_{task}_{STAMP}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    perplexity = math.exp(math.fsum(-total for total, _ in nats) / (5 * N))
    content = {
        "results": {"quiz": {"acc,none": math.fsum(accs) / N}, "text": {"word_perplexity,none": perplexity}},
        "configs": {"quiz": {"output_type": "multiple_choice"}, "text": {"output_type": "loglikelihood_rolling"}},
        "model_name": f"org/{name}",
        "config": {"model": "hf", "model_args": args, **changes.get("config", {})},
        **changes.get("top", {}),
    }
    (folder / f"results_{STAMP}.json").write_text(json.dumps(content))
    return str(folder)


def both(root: Path, left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    return [evaluated(root, "x", **left), evaluated(root, "y", **right)]


def verdicts(comparison: Comparison) -> dict[str, str | None]:
    return {one.metric.partition("/")[0]: one.verdict for one in comparison.contrasts}


def refused_tasks(files: Sequence[str], *texts: str) -> set[str]:
    """Assert that files are refused with these texts, and return the tasks that get no verdict with --anyway."""
    with pytest.raises(ConfigError) as refused:
        compare_files(files)
    for text in texts:
        assert text in str(refused.value)
    return {task for task, verdict in verdicts(compare_files(files, anyway=True)).items() if verdict is None}


OWN, CHOSEN = {"top": {"max_length": 1024}}, {"args": "pretrained=a,max_length=1024", "top": {"max_length": 1024}}
OTHER = {"top": {"max_length": 2048}}


@pytest.mark.parametrize(
    ("left", "right", "told", "tasks"),
    [
        ({"args": "max_length=64"}, {"args": "max_length=512"}, "64 and 512", {"quiz", "text"}),
        ({"args": {"max_length": 64}}, {"args": "max_length=512"}, "64 and 512", {"quiz", "text"}),
        ({"args": "max_model_len=64"}, {}, "64 and none", {"quiz", "text"}),
        (CHOSEN, OTHER, "1024 and 2048", {"quiz", "text"}),
        (OWN, OTHER, "1024 and 2048", {"text"}),
        (CHOSEN, OWN, "", set()),
    ],
)
def test_windows_decide_rolling_tasks_and_all_tasks_if_a_command_chose_them(
    left: dict[str, Any], right: dict[str, Any], told: str, tasks: set[str], tmp_path: Path
) -> None:
    files = both(tmp_path, left, right)
    if tasks:
        assert refused_tasks(files, f"window in tokens: {told}") == tasks
    else:
        compare_files(files)


DECIDING = {
    "add_bos_token": "True",
    "prefix_token_id": "0",
    "truncation": "True",
    "truncation_side": "right",
    "backend": "seq2seq",
    "max_gen_toks": "64",
    "think_end_token": "</think>",
    "enable_thinking": "True",
    "chat_template_args": '{"enable_thinking": false, "a": 1}',
    "some_argument_of_a_later_version": "1",
}


@pytest.mark.parametrize("name", DECIDING)
def test_model_arguments_that_decide_numbers_are_refused(name: str, tmp_path: Path) -> None:
    value = DECIDING[name]
    files = both(tmp_path, {"args": f"pretrained=a,{name}={value},dtype=float32"}, {"args": "pretrained=a"})
    assert refused_tasks(files, f"model argument {name}: {value[:1]}", "and none") == {"quiz", "text"}
    equal = [{"pretrained": "a", name: json.loads(value) if value.startswith("{") else value}, f"{name}={value}"]
    compare_files(both(tmp_path / "equal", *({"args": args} for args in equal)))


@pytest.mark.parametrize(
    "args",
    [
        *("batch_size=8", "device=cuda:0", "parallelize=True", "trust_remote_code=True", "gpu_memory_utilization=0.8"),
        "tokenizer=a",
        *("truncation=False", "backend=default", "add_bos_token=None", "tensor_parallel_size=2", "logits_cache=False"),
    ],
)
def test_model_arguments_without_an_effect_are_not_refused(args: str, tmp_path: Path) -> None:
    found = compare_files(both(tmp_path, {"args": f"pretrained=a,{args}"}, {"args": "pretrained=a"}))
    assert None not in verdicts(found).values()
    assert found.remarks == ()


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ({"args": "dtype=float16"}, {"args": "dtype=float32"}, "dtype float16 and float32"),
        ({"config": {"model_dtype": "torch.bfloat16"}}, {}, "model_dtype torch.bfloat16 and none"),
        ({"config": {"model": "vllm"}}, {}, "model vllm and hf"),
        ({"args": "attn_implementation=sdpa"}, {}, "attn_implementation sdpa and none"),
        ({"config": {"torch_seed": 1}}, {"config": {"torch_seed": 2}}, "torch_seed 1 and 2"),
        ({"args": "tokenizer=org/another"}, {}, "tokenizer org/another and none"),
        ({"args": "use_fast_tokenizer=False"}, {}, "use_fast_tokenizer False and none"),
    ],
)
def test_how_a_model_was_run_is_reported(
    left: dict[str, Any], right: dict[str, Any], text: str, tmp_path: Path
) -> None:
    found = compare_files(both(tmp_path, left, right))
    assert None not in verdicts(found).values()
    assert [text in remark for remark in found.remarks] == [True]


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ({"config": {"limit": 10}}, {}, "limit: 10 and none"),
        ({"config": {"gen_kwargs": {"temperature": 1}}}, {}, "gen_kwargs: {'temperature': 1} and none"),
        ({"top": {"system_instruction_sha": "a"}}, {}, "system instruction: a and none"),
        ({"top": {"chat_template_sha": "a"}}, {}, "chat template: "),
        (
            {"top": {"chat_template_sha": "a", "fewshot_as_multiturn": True}},
            {"top": {"chat_template_sha": "a", "fewshot_as_multiturn": False}},
            "examples as turns: True and",
        ),
        (
            {"top": {"n-shot": {"quiz": 5, "text": 5}}, "config": {"fewshot_seed": 1}},
            {"top": {"n-shot": {"quiz": 5, "text": 5}}, "config": {"fewshot_seed": 2}},
            "n-shot: [5, 1] and [5, 2]",
        ),
    ],
)
def test_other_facts_of_the_command_are_refused(
    left: dict[str, Any], right: dict[str, Any], text: str, tmp_path: Path
) -> None:
    assert refused_tasks(both(tmp_path, left, right), text) == {"quiz", "text"}


def test_two_chat_models_are_paired_by_document_and_target(tmp_path: Path) -> None:
    own = [
        {"own_prompts": name, "top": {"chat_template_sha": name, "fewshot_as_multiturn": True}} for name in ("A", "B")
    ]
    files = both(tmp_path, own[0], own[1])
    found = compare_files(files)
    lines = [(Path(file) / f"samples_quiz_{STAMP}.jsonl").read_text().splitlines() for file in files]
    values = [np.array([json.loads(line)["acc"] for line in of]) for of in lines]
    wins, losses = (int((a > b).sum()) for a, b in (values, values[::-1]))
    p = {one.metric: one.p for one in found.contrasts}
    assert p["quiz/acc"] == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)
    assert ["chat template" in remark and "document and target" in remark for remark in found.remarks] == [True]


def test_chat_models_with_other_targets_or_documents_are_refused(tmp_path: Path) -> None:
    top = {"fewshot_as_multiturn": True}
    left = {"own_prompts": "A", "top": {**top, "chat_template_sha": "A"}}

    def change(name: str) -> Callable[[list[dict[str, Any]]], None]:
        def changed(rows: list[dict[str, Any]]) -> None:
            for place, row in enumerate(rows[::2]):
                row[name] = f"another {place}"

        return changed

    for name in ("target_hash", "doc_hash"):
        right = {"own_prompts": "B", "top": {**top, "chat_template_sha": "B"}, "of_rows": change(name)}
        assert refused_tasks(both(tmp_path / name, left, right), "quiz: ") == {"quiz", "text"}
    # With one template for both, equal prompts are required as without a template.
    same = {"own_prompts": "B", "top": {**top, "chat_template_sha": "A"}}
    assert refused_tasks(both(tmp_path / "same", left, same), "prompts or targets of 60 of 60") == {"quiz", "text"}


@pytest.mark.parametrize(
    ("args", "config", "expected"),
    [
        ("pretrained=org/m", {}, ""),
        ("pretrained=org/m,revision=main", {"model_revision": "main"}, ""),
        ("pretrained=org/m,revision=step1000", {"model_revision": "step1000"}, "@step1000"),
        ({"pretrained": "org/m", "revision": "refs/pr/1"}, {}, "@refs/pr/1"),
        (None, {"model_revision": "step5"}, "@step5"),
        ("subfolder=checkpoint-500", {}, " (subfolder=checkpoint-500)"),
        ("peft=ann/one,load_in_4bit=True", {}, " (peft=ann/one, load_in_4bit=True)"),
        ("pretrained=gpt2,peft=ann/lora", {}, " (peft=ann/lora)"),
        ("peft=ann/one", {"peft_sha": "0123456789abcdef"}, " (peft=ann/one@0123456789ab)"),
        ("load_in_8bit=False", {}, ""),
        ("revision=a,gguf_file=q4.gguf,quantization=awq", {}, "@a (gguf_file=q4.gguf, quantization=awq)"),
        ("pretrained=org/m,tokenizer=gpt2,use_fast_tokenizer=False", {}, " (tokenizer=gpt2, use_fast_tokenizer=False)"),
        ("pretrained=/a/m/,tokenizer=/a/m,tokenizer_revision=main,tokenizer_mode=auto", {}, ""),
        (5, {"model_revision": 5}, "@5"),
        ([], {"model_revision": None}, ""),
    ],
)
def test_what_distinguishes_checkpoints_is_part_of_a_rows_name(args: Any, config: Any, expected: str) -> None:
    assert ModelArguments({"config": {"model_args": args, **config}}).variant == expected


PATHS = ("/a/one/adapter", "/a/two/adapter", "./adapter", "~/adapter", "runs/1/adapter", r"C:\a\adapter", "adapter")


@pytest.mark.parametrize("name", ["pretrained", "peft", "lora_local_path"])
def test_models_in_folders_of_one_name_are_different_models(name: str, tmp_path: Path) -> None:
    board = Leaderboard(tmp_path / "board")
    base = {} if name == "pretrained" else {"pretrained": "org/m"}
    for i, path in enumerate(PATHS):
        own = "org/m" if name == "lora_local_path" else path  # what lm-eval calls the model
        evaluated(tmp_path / "in", str(i), {**base, name: path}, top={"model_name": own})
    for path in find_results(tmp_path / "in"):
        import_results([path], board, tmp_path / "runs", ImportedModel())
    models = [entry.model for entry in board.entries()]
    assert len({model.name for model in models}) == len({model.source for model in models}) == len(PATHS)
    assert not any(folder in str(models) for folder in ("a/", "one/", "two/", "runs", "C:"))
    found = compare_files(sorted(str(path) for path in (tmp_path / "in").glob("*")))
    assert len({entry.model.name for entry in (found.baseline, *found.candidates)}) == len(PATHS)


def test_one_path_in_several_spellings_is_one_model() -> None:
    paths = ["/a/b/adapter", "/a/b/adapter/", "/a//b/adapter", "/a/./b/adapter", r"\a\b\adapter"]
    assert len({ModelArguments({"config": {"model_args": {"peft": path}}}).variant for path in paths}) == 1


def imported(root: Path, args: Any, given: ImportedModel | None = None, **changes: Any) -> Entry:
    (path,) = find_results(Path(evaluated(root, "m", args, **changes)))
    return import_results([path], Leaderboard(root / "board"), root / "runs", given or ImportedModel()).entry


@pytest.mark.parametrize(
    "args", ["subfolder=a", "load_in_8bit=True", "peft=ann/lora", "gguf_file=q.gguf", "tokenizer=t"]
)
def test_other_weights_of_one_commit_are_another_model(args: str, tmp_path: Path) -> None:
    changes = {"config": {"model_sha": "0" * 40}, "top": {"model_name": "org/m"}}
    first, other = (imported(tmp_path / own, f"pretrained=org/m,{own}", **changes) for own in ("", args))
    assert first.model.revision == "0" * 40
    assert comparison_key(first) != comparison_key(other)


def test_files_without_a_model_may_be_of_different_ones(tmp_path: Path) -> None:
    found = [imported(tmp_path / str(i), "", top={"model_name": None, "date": 1.8e9 + i}) for i in range(2)]
    assert [entry.model.name for entry in found] == ["unnamed", "unnamed"]
    assert found[0].model.source != found[1].model.source


@pytest.mark.parametrize("args", ["tokenizer=org/another", "load_in_4bit=True", "quantization=awq"])
def test_trained_models_that_were_loaded_otherwise_are_not_comparable(args: str, tmp_path: Path) -> None:
    objectives = {"": "mle", args: "emo"}
    found = []
    for own, objective in objectives.items():
        given = ImportedModel("gpt2", objective, (0,))
        found.append(imported(tmp_path / objective, f"pretrained=/a/{objective},{own}", given))
    name, _, value = args.partition("=")
    assert differences(*found) == [f"recipe.{name}: none and {value}"]
    paths = [path for objective in objectives.values() for path in find_results(tmp_path / objective / "m")]
    with pytest.raises(DataError, match="precision"):
        import_results(paths, Leaderboard(tmp_path / "b"), tmp_path / "runs", ImportedModel("gpt2", "mle", (0, 1)))


@pytest.mark.parametrize("name", ["enable_thinking", "chat_template_args", "think_end_token"])
def test_arguments_of_a_models_own_template_are_reported(name: str, tmp_path: Path) -> None:
    args = f"pretrained=a,{name}={DECIDING[name]}"
    own = [{"own_prompts": one, "args": args * (one == "A"), "top": {"chat_template_sha": one}} for one in "AB"]
    found = compare_files(both(tmp_path, *own))
    assert None not in verdicts(found).values()
    assert [name in remark for remark in found.remarks] == [False, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a=1,b=x=y, c = 'q' ", {"a": "1", "b": "x=y", "c": "q"}),
        ('a={"x": 1, "y": [1, 2]},b=[1, 2]', {"a": '{"x": 1, "y": [1, 2]}', "b": "[1, 2]"}),
        ({"a": True, "b": None, "c": "none", "d": "true"}, {"a": "True", "d": "True"}),
        ({"a": {"y": 1, "x": 2}, "b": '{"y": 1, "x": 2}'}, {"a": '{"x": 2, "y": 1}', "b": '{"x": 2, "y": 1}'}),
        (",,=,a", {}),
        ("", {}),
        (None, {}),
        ([["a", 1]], {}),
        (7, {}),
    ],
)
def test_arguments_are_read_from_text_and_from_mappings(given: Any, expected: dict[str, str]) -> None:
    assert ModelArguments({"config": {"model_args": given}}).given == expected


def test_the_window_is_the_one_that_was_used() -> None:
    def window(arguments: str | None = None, **data: Any) -> tuple[str | None, bool]:
        given = ModelArguments({**data, "config": {"model_args": arguments}}).window
        return given.tokens, given.decides

    assert window("max_length=64", max_length=128) == ("128", True)
    assert window("max_model_len=64") == ("64", True)
    assert window(max_length=128) == ("128", False)
    assert window(max_length=True) == window(max_length="x") == window() == (None, False)


def test_imports_of_other_arguments_have_other_protocols(tmp_path: Path) -> None:
    arguments = ("pretrained=a", "pretrained=b", "batch_size=4", "add_bos_token=True", "max_length=64")
    protocols = [imported(tmp_path / args, args).protocols["text"] for args in arguments]
    assert protocols[0] == protocols[1] == protocols[2]
    assert len(set(protocols)) == 3


LIGHTEVAL = {
    "config_general": {"lighteval_sha": "?", "model_name": "org/m", "max_samples": None},
    "results": {"leaderboard|arc:challenge|0": {"acc": 0.5, "acc_stderr": 0.01}, "all": {"acc": 0.5}},
    "versions": {"leaderboard|arc:challenge|0": 0},
    "config_tasks": {},
    "summary_tasks": {},
    "summary_general": {},
}


@pytest.mark.parametrize(
    "content",
    [
        LIGHTEVAL,
        {"results": {"arc": {"accuracy": 0.5}}},
        {"results": {"m": {"arc": 0.5}}, "model": "m"},
        {"humaneval": {"pass@1": 0.2}, "config": {"model": "m", "n_samples": 20}},
        [{"name": {"name": "exact_match"}, "count": 1, "sum": 1}],
    ],
)
def test_files_of_other_tools_are_refused(content: Any, tmp_path: Path, command: Callable[..., Any]) -> None:
    path = tmp_path / "results_x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="has no `results`"):
        read_evaluation(str(path))
    command("leaderboard", "import", path, "--leaderboard", tmp_path / "board").refused("has no `results`")
    assert not (tmp_path / "board").exists()


def hashed(number: int, document: Any, **values: float) -> dict[str, Any]:
    """Return a sample with these values."""
    row = {"doc_id": number, "doc": document, "doc_hash": json.dumps(document), "metrics": list(values)}
    return {**row, "prompt_hash": f"p{number}", "target_hash": "t", **values}


def grouped(folder: Path, rows: Mapping[str, Sequence[dict[str, Any]]], groups: dict[str, list[str]]) -> str:
    """Write results with the means of the samples of tasks; those of groups are over all samples."""
    folder.mkdir(parents=True, exist_ok=True)
    of = dict(rows)
    for group in groups:
        of[group] = list(itertools.chain.from_iterable(rows.values()))
    (metric,) = next(iter(rows.values()))[0]["metrics"]
    for task, of_task in rows.items():
        (folder / f"samples_{task}_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of_task))
    content = {
        "results": {name: {f"{metric},none": math.fsum(r[metric] for r in of[name]) / len(of[name])} for name in of},
        "model_name": folder.name,
        "group_subtasks": groups,
        "higher_is_better": {name: {metric: True} for name in of},
    }
    (folder / "results_1.json").write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize(
    "held", [["inner"], ["inner", "outer"]], ids=["a group of groups", "a group that holds itself"]
)
def test_a_group_is_tested_over_the_examples_of_all_its_tasks(held: list[str], tmp_path: Path) -> None:
    files, accs = [], {}
    for name in "xy":
        draw = random.Random(name)
        accs[name] = np.array([[float(draw.random() < 0.5) for _ in range(15)] for _ in "st"])
        pairs = zip("st", accs[name], strict=True)
        rows = {task: [hashed(i, f"{task}{i}", acc=value) for i, value in enumerate(of)] for task, of in pairs}
        files.append(grouped(tmp_path / name, rows, {"outer": held, "inner": ["s", "t"]}))
    found = {one.metric: one for one in compare_files(files).contrasts}
    wins, losses = int((accs["x"] > accs["y"]).sum()), int((accs["x"] < accs["y"]).sum())
    for group in ("inner", "outer"):
        assert found[f"{group}/acc"].items == 30
        assert found[f"{group}/acc"].p == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)


def test_tasks_of_a_group_that_ask_about_the_same_documents_share_their_units(tmp_path: Path) -> None:
    """As of a task in five wordings: the group's number is over 100 answers about 20 documents."""
    files, answers = [], {}
    for name in "xy":
        draw = random.Random(name)
        answers[name] = np.array([[float(draw.random() < 0.5) for _ in range(20)] for _ in range(5)])
        rows: dict[str, list[dict[str, Any]]] = {}
        for task, values in enumerate(answers[name]):
            for i, value in enumerate(values):
                row = hashed(i, {"text": f"the document {i}"}, acc=value)
                row["arguments"] = {"gen_args_0": {"arg_0": f"Wording {task} of {i}"}}
                rows.setdefault(f"v{task}", []).append(row)
        files.append(grouped(tmp_path / name, rows, {"all": list(rows)}))
    found = {one.metric: one for one in compare_files(files).contrasts}["all/acc"]
    assert found.items == 20
    expected = over_items(answers["x"].mean(0) - answers["y"].mean(0))
    assert expected is not None
    assert found.p == pytest.approx(expected.p_value(found.effect))


def test_passages_with_one_number_in_two_tasks_are_two_units(tmp_path: Path) -> None:
    rows: dict[str, list[dict[str, Any]]] = {}
    for task in ("one", "other"):
        documents = [{"passage_id": i // 2, "question": f"What is {i} of {task}?"} for i in range(20)]
        rows[task] = [hashed(i, document, acc=float(i % 3 == 0)) for i, document in enumerate(documents)]
    folder = grouped(tmp_path, rows, {"all": list(rows)})
    assert len(set(read_evaluation(folder).examples["all/acc"].units.values())) == 20
    (tmp_path / "samples_one_1.jsonl").unlink()
    assert read_evaluation(folder).examples.keys() == {"other/acc"}, "of a group that lacks a task, there are none"


def test_a_rule_that_is_none_is_absent(tmp_path: Path) -> None:
    quiz, text = {"output_type": "multiple_choice"}, {"output_type": "loglikelihood_rolling"}
    files = both(tmp_path, {"top": {"configs": {"quiz": {**quiz, "limit": None}, "text": text}}}, {})
    assert None not in verdicts(compare_files(files)).values()


def test_groups_that_hold_each_other_many_times_end(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(60)]
    held = {name: [names[i + 1 - 60]] * 2 for i, name in enumerate(names)}
    files = [tmp_path / f"{name}.json" for name in "xy"]
    for path in files:
        path.write_text(json.dumps({"results": {name: {"acc,none": 0.5} for name in names}, "group_subtasks": held}))
    found = compare_files([str(path) for path in files])
    assert len(found.contrasts) == 60


def test_groups_that_hold_each_other_too_deeply_are_refused(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(3000)]
    held = {name: [below] for name, below in itertools.pairwise(names)}
    content = {"results": {name: {"acc,none": 0.5} for name in names}, "group_subtasks": held}
    path = tmp_path / "results_1.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="too deeply"):
        import_results([path], Leaderboard(tmp_path / "board"), tmp_path / "runs", ImportedModel())


NORMAL = {name: np.random.default_rng(seed).normal(seed * 0.3, 1, N) for seed, name in enumerate(("before", "after"))}
"""The scores of two models. Two examples are about one passage."""


def scored(root: Path, model: str, **kept: Iterable[int]) -> str:
    """Write results with these examples of each task, and of the group of all."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for task, ids in kept.items():
        documents = {i: {"passage": f"{task} {i // 2}", "question": i} for i in ids}
        rows[task] = [hashed(i, document, score=NORMAL[model][i]) for i, document in documents.items()]
    return grouped(root / model, rows, {"all": list(kept)})


@pytest.mark.parametrize(("ours", "theirs"), [((3,), ()), ((), (3,)), ((3, 8, 21), (40, 41, 50)), ((0, 1), (58, 59))])
def test_the_examples_that_both_files_have_are_compared(
    ours: tuple[int, ...], theirs: tuple[int, ...], tmp_path: Path
) -> None:
    def compared(root: Path, ours: Iterable[int], theirs: Iterable[int]) -> Contrast:
        lacking = {"after": ours, "before": theirs}
        files = [scored(root, name, a=sorted(set(range(N)) - set(lacking[name]))) for name in lacking]
        return next(one for one in compare_files(files).contrasts if one.metric == "a/score")

    found, excluded = compared(tmp_path / "some", ours, theirs), {*ours, *theirs}
    expected = compared(tmp_path / "both", excluded, excluded)
    kept = [i for i in range(N) if i not in excluded]
    assert found.effect == pytest.approx(np.mean(NORMAL["after"][kept] - NORMAL["before"][kept]))
    assert (found.items, found.common_examples, found.all_examples) == (len({i // 2 for i in kept}), len(kept), N)
    assert expected.common_examples is None
    assert (found.p, found.ci95) == (pytest.approx(expected.p), pytest.approx(expected.ci95))


@pytest.mark.parametrize(
    ("ours", "theirs"), [(range(4, N), range(N)), (range(1, N), range(5, N)), (range(30), range(30, N))]
)
def test_many_missing_examples_are_refused(ours: range, theirs: range, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="examples"):
        compare_files([scored(tmp_path, "after", a=ours), scored(tmp_path, "before", a=theirs)])


def test_the_examples_of_a_group_are_counted_together(tmp_path: Path) -> None:
    tasks = {"small": range(10), "large": range(10, N)}
    files = [scored(tmp_path, "after", **{**tasks, "small": range(1, 10)}), scored(tmp_path, "before", **tasks)]
    found = {one.metric: one for one in compare_files(files, anyway=True).contrasts}
    assert (found["all/score"].common_examples, found["all/score"].all_examples) == (59, 60)
    assert found["all/score"].effect == pytest.approx(np.mean(NORMAL["after"][1:] - NORMAL["before"][1:]))
    assert found["large/score"].p is not None
    assert found["small/score"].p is None
    assert "1 of 10 examples" in (found["small/score"].why or "")
