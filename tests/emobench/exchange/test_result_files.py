"""Result files of two models are compared example by example, with the answers of scipy and statsmodels."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.evaluation import by_content
from emobench.exchange.result_files import compare_files, names_results, read_evaluation
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.leaderboard.stats.random_effects import over_items

STAMP = "2026-01-01T00-00-00"
N = 200
TWICE = '{"id": 1, "input": ""}, {"id": 1, "input": ""}'


def evaluated(root: Path, model: str, seed: int, **changes: Any) -> Path:
    """Write the results of one model on two tasks, in lm_eval's shape, each model in an order of its own."""
    draw = random.Random(seed)
    share = {"a": 0.4 + 0.2 * seed, "b": 0.5}
    folder = root / model
    folder.mkdir(parents=True)
    results: dict[str, Any] = {}
    for task in ("a", "b"):
        rows = []
        for doc in range(changes.get("examples", N)):
            acc = float(draw.random() < share[task])
            row = {"doc_id": doc, "doc_hash": f"{task}{doc:040}", "prompt_hash": f"p{doc}", "target_hash": f"t{doc}"}
            row |= {"doc": {"question": doc}, "filter": "none", "metrics": ["acc", "score"]}
            rows.append(row | {"acc": acc, "score": acc + draw.gauss(0, 0.5)})
        changes.get("of_rows", lambda rows: None)(rows)
        order = draw.sample(range(len(rows)), len(rows))
        for place, i in enumerate(order):
            rows[i]["doc_id"] = place  # where a document stands is no part of what it is
        shown = [rows[i] for i in order]
        (folder / f"samples_{task}_{STAMP}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shown))
        results[task] = {
            f"{metric},none": math.fsum(r[metric] for r in rows) / len(rows) for metric in ("acc", "score")
        }
    content = {
        "results": results,
        "model_name": f"org/{model}",
        "versions": {"a": changes.get("version", 1.0), "b": 1.0},
        "n-shot": {"a": changes.get("shots", 0), "b": 0},
        "configs": {task: {"doc_to_text": "{{question}}"} for task in results},
        "higher_is_better": {task: {"acc": True, "score": True} for task in results},
        "n-samples": {task: {"effective": changes.get("examples", N)} for task in results},
    }
    (folder / f"results_{STAMP}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    return [str(evaluated(tmp_path, "after", 1)), str(evaluated(tmp_path, "before", 0))]


def paired(folders: list[str], task: str, metric: str) -> list[np.ndarray]:
    """Read the values of both files, in the order of the documents, without a line of emobench."""
    found = []
    for folder in folders:
        lines = next(Path(folder).glob(f"samples_{task}_*.jsonl")).read_text().splitlines()
        rows = sorted(map(json.loads, lines), key=lambda row: row["doc_hash"])
        found.append(np.array([row[metric] for row in rows]))
    return found


def by_metric(comparison: Comparison) -> dict[str, Contrast]:
    return {contrast.metric: contrast for contrast in comparison.contrasts}


def test_accuracies_have_the_p_of_mcnemar_in_statsmodels_and_of_scipy(pair: list[str]) -> None:
    found = by_metric(compare_files(pair)[0])
    ps = {}
    for task in ("a", "b"):
        ours, theirs = paired(pair, task, "acc")
        table = [[np.sum((ours == i) & (theirs == j)) for j in (1, 0)] for i in (1, 0)]
        ps[task] = mcnemar(table, exact=True).pvalue
        contrast = found[f"{task}/acc"]
        assert contrast.p == pytest.approx(ps[task], rel=1e-12)
        discordant = int(table[0][1] + table[1][0])
        assert contrast.p == pytest.approx(stats.binomtest(int(table[0][1]), discordant).pvalue, rel=1e-12)
        interval = stats.ttest_rel(ours, theirs).confidence_interval()
        assert contrast.ci95 == pytest.approx(tuple(interval), abs=0.01)  # which has no exact interval
        assert (contrast.p is not None and contrast.p <= 0.05) == (not contrast.ci95[0] <= 0 <= contrast.ci95[1])
        assert (contrast.effect, contrast.items) == (pytest.approx((ours - theirs).mean()), N)
    holm = dict(zip(ps, multipletests(list(ps.values()), method="holm")[1], strict=True))
    assert {task: found[f"{task}/acc"].p_holm for task in ps} == pytest.approx(holm)
    assert found["a/acc"].verdict == "better"
    assert found["b/acc"].verdict == "tied"


def corrected_p(delta_I: np.ndarray) -> float:
    """Return the largest p of Hall's corrected t over a grid of skewnesses up to its limit."""
    items, error = len(delta_I), stats.sem(delta_I)
    t, skewness = delta_I.mean() / error, stats.kstat(delta_I, 3) / items**2 / error**3
    r = np.linspace(0, (1.4 + 150 / items**2) * skewness, 20_001)
    corrected = t + r * t**2 / 3 + r**2 * t**3 / 27 + r / 6
    return float(2 * stats.t.sf(np.abs(corrected).min(), items - 1))


def test_scores_have_the_p_and_interval_of_a_paired_t_corrected_for_skewness(pair: list[str]) -> None:
    found = by_metric(compare_files(pair)[0])
    for task in ("a", "b"):
        ours, theirs = paired(pair, task, "score")
        contrast = found[f"{task}/score"]
        assert contrast.p == pytest.approx(corrected_p(ours - theirs), rel=1e-4)
        low, high = contrast.ci95 or (0, 0)
        assert [corrected_p(ours - theirs - end) for end in (low, high)] == pytest.approx([0.05, 0.05], rel=1e-3)
        plain = stats.ttest_rel(ours, theirs)
        assert contrast.p >= plain.pvalue * (1 - 1e-9)
        assert plain.confidence_interval().low >= low - 1e-9
        assert plain.confidence_interval().high <= high + 1e-9
        assert contrast.test == "paired t test"


def stored_again(rows: list[dict[str, Any]]) -> None:
    """Store each of the first 30 documents 32 times, with answers that agree in most copies."""
    draw = random.Random(sum(row["acc"] for row in rows))
    copies = [{**row, "acc": row["acc"] if draw.random() < 0.7 else 1 - row["acc"]} for row in rows[:30] * 32]
    rows[:] = copies


def test_a_document_that_is_stored_32_times_is_one_unit(tmp_path: Path) -> None:
    folders = [str(evaluated(tmp_path, name, seed, of_rows=stored_again)) for seed, name in enumerate("ab")]
    found = by_metric(compare_files(folders)[0])
    for task in ("a", "b"):
        means = [values.reshape(30, 32).mean(1) for values in paired(folders, task, "acc")]
        contrast = found[f"{task}/acc"]
        assert contrast.items == 30
        assert contrast.p == pytest.approx(corrected_p(means[0] - means[1]), rel=1e-4)
        assert contrast.effect == pytest.approx((means[0] - means[1]).mean())


def another_id(row: dict[str, Any], copy: int) -> None:
    row["doc"] = {"id": copy, "questionId": f"q{copy}", "question": row["doc"]["question"]}
    row["arguments"] = {"gen_args_0": {"arg_0": f"shots {copy}, and the question {row['doc']['question']}"}}


def another_space(row: dict[str, Any], copy: int) -> None:
    row["arguments"] = {"gen_args_0": {"arg_0": f"The question {row['doc']['question']}" + copy * " "}}
    row["doc"] = {"question": f"The question {row['doc']['question']}" + copy * "\n"}


@pytest.mark.parametrize("change", [another_id, another_space])
def test_copies_under_other_ids_or_with_other_spaces_are_one_unit(
    change: Callable[[dict[str, Any], int], None], tmp_path: Path
) -> None:
    def copied(rows: list[dict[str, Any]]) -> None:
        rows[:] = [{**row} for row in rows[:20] for _ in range(4)]
        for place, row in enumerate(rows):
            change(row, place)
            row["doc_hash"], row["prompt_hash"] = f"d{place:040}", f"p{place}"

    files = [str(evaluated(tmp_path, name, seed, of_rows=copied)) for seed, name in enumerate("ab")]
    assert {name: one.items for name, one in by_metric(compare_files(files)[0]).items() if "acc" in name} == {
        "a/acc": 20,
        "b/acc": 20,
    }


def test_a_task_of_one_file_alone_leaves_the_verdicts_of_the_others(pair: list[str]) -> None:
    whole = by_metric(compare_files(pair)[0])
    results = next(Path(pair[1]).glob("results_*"))
    content = json.loads(results.read_text())
    del content["results"]["b"]
    results.write_text(json.dumps(content))
    for files in (pair, pair[::-1]):
        found = by_metric(compare_files(files)[0])
        assert found.keys() == {"a/acc", "a/score"}
        raw = {name: whole[name].p for name in found}
        assert {name: one.p for name, one in found.items()} == pytest.approx(raw)
        adjusted = multipletests(list(raw.values()), method="holm")[1]
        assert [found[name].p_holm for name in raw] == pytest.approx(list(adjusted))
        assert found["a/acc"].verdict == ("better" if files == pair else "worse")


def rewritten(folder: str, **changes: Any) -> None:
    path = next(Path(folder).glob("results_*"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_files_of_two_versions_are_told(pair: list[str]) -> None:
    for versions in (("0.4.5", "0.4.13"), ("0.4.5", "0.4.5"), ("0.4.5", None)):
        for folder, version in zip(pair, versions, strict=True):
            rewritten(folder, lm_eval_version=version)
        remarks = compare_files(pair)[0].remarks
        assert any("0.4.5 and 0.4.13" in remark for remark in remarks) == (versions[1] == "0.4.13")


def test_files_that_disagree_on_a_direction_get_no_verdict_in_either_order(pair: list[str]) -> None:
    rewritten(pair[0], higher_is_better={"a": {"acc": True, "score": False}, "b": {"acc": True, "score": True}})
    for files in (pair, pair[::-1]):
        found = by_metric(compare_files(files)[0])
        assert (found["a/score"].verdict, found["a/score"].p, found["a/score"].higher_is_better) == (None, None, None)
        assert "agree" in (found["a/score"].why or "")
        assert found["b/score"].verdict is not None


def test_percent_beside_a_number_below_1_is_no_fraction(tmp_path: Path) -> None:
    """Some tasks give `f1` in percent: .9 is then less than one percent, if the other model has 40."""
    files = []
    for seed, (name, size) in enumerate([("low", 0.9), ("high", 90.0)]):

        def as_f1(rows: list[dict[str, Any]], size: float = size) -> None:
            for row in rows:
                row["metrics"], row["f1"] = ["f1"], row["acc"] * size

        folder = evaluated(tmp_path, name, seed, of_rows=as_f1)
        means = {task: values.mean() for task in "ab" for values in paired([str(folder)], task, "f1")}
        rewritten(str(folder), results={task: {"f1,none": mean} for task, mean in means.items()})
        files.append(str(folder))
    for given in (files, files[::-1]):
        found = by_metric(compare_files(given)[0])["a/f1"]
        left, right = paired(given, "a", "f1")
        assert found.unit == "score"
        assert found.effect == pytest.approx((left - right).mean())


def test_the_baseline_can_be_any_of_them(pair: list[str]) -> None:
    last, first = (by_metric(compare_files(pair, baseline)[0]) for baseline in (None, pair[0]))
    assert {name: -one.effect for name, one in first.items()} == pytest.approx(
        {name: one.effect for name, one in last.items()}
    )
    assert first["a/acc"].verdict == "worse"


def other_prompt(rows: list[dict[str, Any]]) -> None:
    rows[3]["prompt_hash"] = "another"


def other_documents(rows: list[dict[str, Any]]) -> None:
    for place in range(11):
        rows[place]["doc_hash"] = f"{place:x>40}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": 2.0}, "a: version: 1.0 and 2.0"),
        ({"shots": 5}, "a: shots: 0 and"),
        ({"examples": 150}, "a: 50 of 200 examples are missing"),
        ({"of_rows": other_documents}, "a: 11 of 211 examples are missing"),
        ({"of_rows": other_prompt}, "a: prompts or targets of 1 of 200 examples differ"),
    ],
)
def test_examples_that_do_not_pair_are_refused_and_shown_without_a_verdict(
    changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    files = [str(evaluated(tmp_path, "after", 1)), str(evaluated(tmp_path, "before", 0, **changes))]
    with pytest.raises(ConfigError) as refused:
        compare_files(files)
    assert text.replace("shots", "n-shot") in str(refused.value)
    assert "--anyway" in str(refused.value)
    shown = by_metric(compare_files(files, anyway=True)[0])
    assert shown["a/acc"].verdict is None
    assert shown["a/acc"].p is None
    assert text.partition(": ")[2].replace("shots", "n-shot") in (shown["a/acc"].why or "")
    only_a = "version" in changes or "shots" in changes
    assert (shown["b/acc"].verdict is not None) == only_a


def test_one_of_three_files_that_does_not_pair_is_named(tmp_path: Path) -> None:
    changes = {"second": {"of_rows": other_prompt}}
    names = ("first", "second", "third")
    files = [str(evaluated(tmp_path, name, i, **changes.get(name, {}))) for i, name in enumerate(names)]
    with pytest.raises(ConfigError) as refused:
        compare_files(files)
    assert [f"{name}/results" in str(refused.value) for name in names] == [False, True, True]
    found, _ = compare_files(files, anyway=True)
    names_of = {entry.id: entry.model.name for entry in found.candidates}
    verdicts = {names_of[one.candidate]: one.verdict for one in found.contrasts if one.metric == "a/acc"}
    assert verdicts["second"] is None
    assert verdicts["first"] is not None
    assert found.baseline.model.name == "third"


@pytest.mark.parametrize(("count", "more"), [(4, []), (5, ["and 1 more tasks"]), (7, ["and 3 more tasks"])])
def test_a_refusal_names_four_tasks_and_counts_the_rest(count: int, more: list[str], tmp_path: Path) -> None:
    paths = [tmp_path / f"results_{version}.json" for version in (1, 2)]
    tasks = [f"task{i}" for i in range(count)]
    for version, path in enumerate(paths):
        numbers = {task: {"acc,none": 0.5} for task in tasks}
        path.write_text(json.dumps({"results": numbers, "versions": dict.fromkeys(tasks, version)}))
    with pytest.raises(ConfigError) as refused:
        compare_files(list(map(str, paths)))
    assert re.findall(r"and -?\d+ more tasks", str(refused.value)) == more
    assert str(refused.value).count(": version: 1 and 0") + str(refused.value).count(": version: 0 and 1") == 4


def test_files_without_a_common_metric_are_refused(tmp_path: Path) -> None:
    paths = []
    for task in ("a", "b"):
        paths.append(tmp_path / f"results_{task}.json")
        paths[-1].write_text(json.dumps({"results": {task: {"acc,none": 0.5}}}))
    with pytest.raises(ConfigError, match="no metric in common"):
        compare_files(list(map(str, paths)))


def test_equal_contents_are_numbered_in_order() -> None:
    found = by_content({"1": "x", "2": "y", "3": "x", "4": "x", "5": "y"})
    assert found == {"1": "x", "2": "y", "3": "x#2", "4": "x#3", "5": "y#2"}


def test_equal_documents_are_paired_in_their_order(tmp_path: Path) -> None:
    def twice(rows: list[dict[str, Any]]) -> None:
        rows[1]["doc_hash"] = rows[0]["doc_hash"]
        rows[1]["prompt_hash"], rows[1]["target_hash"] = rows[0]["prompt_hash"], rows[0]["target_hash"]

    files = [str(evaluated(tmp_path, name, seed, of_rows=twice)) for seed, name in enumerate(("x", "y"))]
    assert by_metric(compare_files(files)[0])["a/acc"].items == N - 1


def test_files_without_samples_have_no_verdict_and_say_so(pair: list[str]) -> None:
    for path in Path(pair[0]).glob("samples_*"):
        path.unlink()
    found, problems = compare_files(pair)
    assert {contrast.verdict for contrast in found.contrasts} == {"undetermined"}
    assert "--log_samples" in problems[0]
    assert {contrast.why for contrast in found.contrasts} == {
        "no per-example results of after; evaluate with --log_samples"
    }


def test_samples_that_give_no_mean_are_not_called_missing(pair: list[str]) -> None:
    rewritten(pair[0], results={task: {"acc,none": 0.123} for task in "ab"})
    found, problems = compare_files(pair)
    assert problems == []
    assert {one.verdict for one in found.contrasts} == {"undetermined"}
    assert all("mean" in (one.why or "") for one in found.contrasts)


def test_the_heading_has_the_number_of_examples_or_their_range(
    pair: list[str], command: Callable[..., Any], tmp_path: Path
) -> None:
    assert "after against before · lm-eval · 200 examples\n" in command("compare", *pair).out
    files = [str(evaluated(tmp_path / "x", name, seed, examples=40 + 20 * seed)) for seed, name in enumerate("xy")]
    assert "x against y · lm-eval\n" in command("compare", *files, "--anyway").out
    few = [log(tmp_path / f"{name}.json", name, text) for name, text in (("v", "CCCC"), ("w", "IIII"))]
    assert "v against w · inspect · 4 examples\n" in command("compare", *few).out


def test_a_renamed_results_file_finds_its_samples(pair: list[str]) -> None:
    for folder in map(Path, pair):
        next(folder.glob("results_*")).rename(folder / "results.json")
    found, problems = compare_files([f"{folder}/results.json" for folder in pair])
    assert problems == []
    assert by_metric(found)["a/acc"].p is not None


def test_two_models_of_one_name_are_called_by_their_files(tmp_path: Path, pair: list[str]) -> None:
    copy = tmp_path / "copy" / "after"
    shutil.copytree(pair[0], copy)
    found, _ = compare_files([pair[0], str(copy)])
    assert found.baseline.model.name == str(copy)
    assert {contrast.verdict for contrast in found.contrasts} == {"tied"}


@pytest.mark.slow
def test_files_that_lm_eval_wrote(results_files: list[Path]) -> None:
    found, problems = compare_files([str(path) for path in results_files])
    contrasts = by_metric(found)
    assert problems == []
    assert contrasts["tiny_two/f1"].verdict == "undetermined"
    assert contrasts["tiny_group/acc"].items == 20  # both tasks ask about the same documents
    ours, theirs = paired([str(path.parent) for path in results_files], "tiny_two", "acc")
    only = [int((a > b).sum()) for a, b in ((ours, theirs), (theirs, ours))]
    assert contrasts["tiny_two/acc"].p == pytest.approx(stats.binomtest(only[0], sum(only)).pvalue)
    nats = [of[:, 0] for of in paired([str(path.parent) for path in results_files], "tiny_ppl", "word_perplexity")]
    assert contrasts["tiny_ppl/word_perplexity"].p == pytest.approx(corrected_p(nats[0] - nats[1]), rel=1e-4)


def log(path: Path, model: str, right: str, **changes: Any) -> str:
    """Write a log as inspect does, of one epoch or several for each sample: C is right, I is wrong."""
    epochs, distinct = changes.get("epochs", 1), changes.get("distinct", len(right))
    samples = [
        {
            "id": i // epochs,
            "epoch": 1 + i % epochs,
            "input": f"question {i // epochs % distinct}",
            "target": f"x{i // epochs // distinct}",
        }
        | {"scores": {"match": {"value": letter}}}
        for i, letter in enumerate(right)
    ]
    value = right.count("C") / len(right)
    content = {
        "version": 2,
        "status": changes.get("status", "success"),
        "eval": {"task": "arc", "task_version": 0, "model": model, "dataset": {}, "config": {"epochs": epochs}},
        "plan": {"steps": [{"solver": changes.get("solver", "generate"), "params": {}}]},
        "results": {"scores": [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"value": value}}}]},
        "samples": samples,
    }
    path.write_text(json.dumps(content))
    return str(path)


def test_logs_of_inspect_are_compared_as_scipy_does(tmp_path: Path) -> None:
    left, right = "CCCCCCCCCCCCIICC", "IIIIIIIICCCCIICI"
    files = [log(tmp_path / f"{name}.json", name, text) for name, text in (("x", left), ("y", right))]
    (contrast,) = compare_files(files)[0].contrasts
    assert contrast.metric == "arc/match,accuracy"
    assert contrast.p == pytest.approx(stats.binomtest(0, 9).pvalue)
    assert (contrast.verdict, contrast.items) == ("better", 16)


def test_the_epochs_of_a_sample_are_one_unit(tmp_path: Path) -> None:
    draw = random.Random(0)
    texts = ["".join(draw.choices("CI", k=60)) for _ in range(2)]
    files = [log(tmp_path / f"{i}.json", f"m{i}", text, epochs=3) for i, text in enumerate(texts)]
    (contrast,) = compare_files(files)[0].contrasts
    means = [np.array([letter == "C" for letter in text]).reshape(20, 3).mean(axis=1) for text in texts]
    assert (contrast.items, contrast.p) == (20, pytest.approx(corrected_p(means[0] - means[1]), rel=1e-4))


def test_samples_with_one_input_are_one_unit_whatever_their_targets(tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = ["".join(draw.choices("CI", k=120)) for _ in range(2)]
    files = [log(tmp_path / f"{i}.json", f"m{i}", text, epochs=2, distinct=20) for i, text in enumerate(texts)]
    (contrast,) = compare_files(files)[0].contrasts
    # 3 samples of each input, 2 epochs of each sample
    means = [np.array([c == "C" for c in text]).reshape(3, 20, 2).mean(axis=(0, 2)) for text in texts]
    assert (contrast.items, contrast.p) == (20, pytest.approx(corrected_p(means[0] - means[1]), rel=1e-4))


@pytest.mark.parametrize(
    ("changes", "text"), [({"solver": "chain_of_thought"}, "solvers"), ({"status": "error"}, "status is 'error'")]
)
def test_another_solver_and_a_failed_log_are_refused(changes: dict[str, str], text: str, tmp_path: Path) -> None:
    files = [log(tmp_path / "x.json", "x", "CCCC"), log(tmp_path / "y.json", "y", "CIII", **changes)]
    with pytest.raises((ConfigError, DataError), match=text):
        compare_files(files)


def test_what_names_results() -> None:
    assert names_results("a/results.json")
    assert names_results("a/folder-that-is-not-there")
    assert not names_results("emo")
    assert not names_results("model=org/name,objective=emo")
    assert not names_results("published:emo-table3/llama-7b/emo")
    assert not names_results("./my_loss.py:MyLoss")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "no JSON"),
        ("[]", "has no `results`"),
        ('{"results": {}}', "has no `results`"),
        ('{"status": "success", "eval": {"task": "t"}}', "no number under `results`"),
        ('{"status": "success", "eval": {"task": "t"}, "samples": [{}]}', "no `id`"),
        ('{"status": "success", "eval": {"task": "t"}, "samples": 1, "plan": {"steps": 1}}', "no number"),
        (
            '{"status": "success", "eval": {"task": "t"}, "samples": [{"id": 1, "input": ""}, {"id": 1, "input": ""}]}',
            "twice",
        ),
    ],
)
def test_other_files_are_refused_in_a_sentence(content: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(DataError, match=text):
        read_evaluation(str(path))


def test_a_file_of_another_kind_is_told_what_belongs_there(
    pair: list[str], command: Callable[..., Any], tmp_path: Path
) -> None:
    samples, results = Path(pair[0]) / f"samples_a_{STAMP}.jsonl", Path(pair[0]) / f"results_{STAMP}.json"
    expected = f"holds the samples of one task; expected its results file {results}, or the folder that holds both."
    command("compare", samples, pair[1]).refused(f"{samples} {expected}")
    results.unlink()
    command("compare", samples, pair[1]).refused("expected its results_*.json, which lm-evaluation-harness writes")
    for name in ("toy.yaml", "toy.jsonl", "my_loss.py"):
        (tmp_path / name).write_text("name: toy\n")
        for verb in (("compare", pair[1]), ("leaderboard", "import", "--leaderboard", tmp_path / "board")):
            command(*verb, tmp_path / name).refused(
                f"{name}: no JSON", "expected results_*.json of lm-evaluation-harness"
            )


def test_a_file_beside_is_meant_by_its_bare_name(
    pair: list[str], command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair[0])
    samples = f"samples_a_{STAMP}.jsonl"
    command("compare", samples, "emo").refused("emo is no result file, and others are")
    command("compare", samples, f"results_{STAMP}.json").refused(f"its results file results_{STAMP}.json")


def test_a_folder_of_several_and_of_no_results(tmp_path: Path, pair: list[str]) -> None:
    with pytest.raises(DataError, match="holds 2 result files"):
        read_evaluation(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no"):
        read_evaluation(str(tmp_path / "empty"))
    with pytest.raises(DataError, match="does not exist"):
        read_evaluation(str(tmp_path / "none.json"))
    (tmp_path / "log.eval").write_bytes(b"PK")
    with pytest.raises(DataError, match="inspect log convert"):
        read_evaluation(str(tmp_path / "log.eval"))
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare_files([pair[0], pair[0]])


def test_the_command(pair: list[str], command: Callable[..., Any], tmp_path: Path) -> None:
    board = tmp_path / "board"
    done = command("compare", *pair, "--leaderboard", board).ok()
    assert "after against before · lm-eval · 200 examples" in done.out
    assert "about these two models on examples like these, not about" in " ".join(done.out.split())
    assert "--explain: " in done.out
    assert "McNemar" in command("compare", *pair, "--leaderboard", board, "--explain").out
    assert not board.exists()
    plain = command("compare", *pair, "--metric", "acc", "--json").json["comparisons"]
    assert plain[0]["replicates"] == "items"
    assert [c["metric"] for c in plain[0]["contrasts"]] == ["a/acc", "b/acc"]
    assert plain[0]["contrasts"][0]["tests"] == 2
    refused = command("compare", pair[0], "emo")
    assert refused.code == 2
    assert "emo is no result file" in refused.err
    assert command("compare", *pair, "--across-bases").code == 2
    assert command("compare", *pair, "--metric", "nothing").code == 2


@pytest.mark.parametrize("items", [10, 60, 300])
def test_lognormal_differences_are_not_called_different(items: int) -> None:
    """Differences whose true mean is 0: the paired t test rejects 28 % of 10, and 11 % of 300."""
    rng = np.random.default_rng(items)
    counted = {"plain": 0, "ours": 0}
    for _ in range(400):
        delta_I = rng.lognormal(0, 1.5, items) - math.exp(1.5**2 / 2)
        noise = over_items(delta_I)
        assert noise is not None
        effect = float(delta_I.mean())
        counted["ours"] += noise.p_value(effect) < 0.05 and not noise.hidden(effect)
        counted["plain"] += stats.ttest_1samp(delta_I, 0).pvalue < 0.05
    assert counted["plain"] >= 0.08 * 400
    assert counted["ours"] <= 0.07 * 400
