"""Result files of two models are compared example by example, with the answers of scipy and statsmodels."""

from __future__ import annotations

import json
import math
import random
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
from emobench.exchange.result_files import compare_files, names_results, read_evaluation
from emobench.leaderboard.stats.compare import Comparison, Contrast

STAMP = "2026-01-01T00-00-00"
N = 200


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
    found = by_metric(compare_files(pair))
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
    found = by_metric(compare_files(pair))
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
    found = by_metric(compare_files(folders))
    for task in ("a", "b"):
        means = [values.reshape(30, 32).mean(1) for values in paired(folders, task, "acc")]
        contrast = found[f"{task}/acc"]
        assert contrast.items == 30
        assert contrast.p == pytest.approx(corrected_p(means[0] - means[1]), rel=1e-4)
        assert contrast.effect == pytest.approx((means[0] - means[1]).mean())


def test_a_task_of_one_file_alone_leaves_the_verdicts_of_the_others(pair: list[str]) -> None:
    whole = by_metric(compare_files(pair))
    results = next(Path(pair[1]).glob("results_*"))
    content = json.loads(results.read_text())
    del content["results"]["b"]
    results.write_text(json.dumps(content))
    for files in (pair, pair[::-1]):
        found = by_metric(compare_files(files))
        assert found.keys() == {"a/acc", "a/score"}
        raw = {name: whole[name].p for name in found}
        assert {name: one.p for name, one in found.items()} == pytest.approx(raw)
        adjusted = multipletests(list(raw.values()), method="holm")[1]
        assert [found[name].p_holm for name in raw] == pytest.approx(list(adjusted))
        assert found["a/acc"].verdict == ("better" if files == pair else "worse")


def rewritten(folder: str, **changes: Any) -> None:
    path = next(Path(folder).glob("results_*"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_files_that_disagree_on_a_direction_get_no_verdict_in_either_order(pair: list[str]) -> None:
    rewritten(pair[0], higher_is_better={"a": {"acc": True, "score": False}, "b": {"acc": True, "score": True}})
    for files in (pair, pair[::-1]):
        found = by_metric(compare_files(files))
        assert (found["a/score"].verdict, found["a/score"].p, found["a/score"].higher_is_better) == (None, None, None)
        assert "direction" in (found["a/score"].why or "")
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
        found = by_metric(compare_files(given))["a/f1"]
        left, right = paired(given, "a", "f1")
        assert found.unit == "score"
        assert found.effect == pytest.approx((left - right).mean())


def test_the_baseline_can_be_any_of_them(pair: list[str]) -> None:
    last, first = (by_metric(compare_files(pair, baseline)) for baseline in (None, pair[0]))
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
    shown = by_metric(compare_files(files, anyway=True))
    assert shown["a/acc"].verdict is None
    assert shown["a/acc"].p is None
    assert text.partition(": ")[2].replace("shots", "n-shot") in (shown["a/acc"].why or "")
    only_a = "version" in changes or "shots" in changes
    assert (shown["b/acc"].verdict is not None) == only_a


def test_files_without_a_common_metric_are_refused(tmp_path: Path) -> None:
    paths = []
    for task in ("a", "b"):
        paths.append(tmp_path / f"results_{task}.json")
        paths[-1].write_text(json.dumps({"results": {task: {"acc,none": 0.5}}}))
    with pytest.raises(ConfigError, match="no metric in common"):
        compare_files(list(map(str, paths)))


def test_equal_documents_are_paired_in_their_order(tmp_path: Path) -> None:
    def twice(rows: list[dict[str, Any]]) -> None:
        rows[1]["doc_hash"] = rows[0]["doc_hash"]
        rows[1]["prompt_hash"], rows[1]["target_hash"] = rows[0]["prompt_hash"], rows[0]["target_hash"]

    files = [str(evaluated(tmp_path, name, seed, of_rows=twice)) for seed, name in enumerate(("x", "y"))]
    assert by_metric(compare_files(files))["a/acc"].items == N - 1


def test_files_without_samples_have_no_verdict_and_say_so(pair: list[str]) -> None:
    for path in Path(pair[0]).glob("samples_*"):
        path.unlink()
    found = compare_files(pair)
    assert {contrast.verdict for contrast in found.contrasts} == {"undetermined"}
    assert {contrast.why for contrast in found.contrasts} == {
        "no per-example results of after; evaluate with --log_samples"
    }


def test_samples_that_give_no_mean_are_not_called_missing(pair: list[str]) -> None:
    rewritten(pair[0], results={task: {"acc,none": 0.123} for task in "ab"})
    found = compare_files(pair)
    assert {one.verdict for one in found.contrasts} == {"undetermined"}
    assert all("mean" in (one.why or "") for one in found.contrasts)


def test_two_models_of_one_name_are_called_by_their_files(tmp_path: Path, pair: list[str]) -> None:
    copy = tmp_path / "copy" / "after"
    shutil.copytree(pair[0], copy)
    found = compare_files([pair[0], str(copy)])
    assert found.baseline.model.name == str(copy)
    assert {contrast.verdict for contrast in found.contrasts} == {"tied"}


@pytest.mark.slow
def test_files_that_lm_eval_wrote(results_files: list[Path]) -> None:
    found = compare_files([str(path) for path in results_files])
    contrasts = by_metric(found)
    assert contrasts["tiny_two/f1"].verdict == "undetermined"
    assert contrasts["tiny_group/acc"].items == 20  # both tasks ask about the same documents
    ours, theirs = paired([str(path.parent) for path in results_files], "tiny_two", "acc")
    only = [int((a > b).sum()) for a, b in ((ours, theirs), (theirs, ours))]
    assert contrasts["tiny_two/acc"].p == pytest.approx(stats.binomtest(only[0], sum(only)).pvalue)
    nats = [of[:, 0] for of in paired([str(path.parent) for path in results_files], "tiny_ppl", "word_perplexity")]
    assert contrasts["tiny_ppl/word_perplexity"].p == pytest.approx(corrected_p(nats[0] - nats[1]), rel=1e-4)


def test_a_file_of_another_kind_is_told_what_belongs_there(
    pair: list[str], command: Callable[..., Any], tmp_path: Path
) -> None:
    samples = Path(pair[0]) / f"samples_a_{STAMP}.jsonl"
    command("compare", samples, pair[1]).refused(f"{samples} holds the samples of one task")
    for name in ("toy.yaml", "my_loss.py"):
        (tmp_path / name).write_text("name: toy\n")
        for verb in (("compare", pair[1]), ("leaderboard", "import", "--leaderboard", tmp_path / "board")):
            command(*verb, tmp_path / name).refused(
                f"{name}: not valid JSON", "expected results_*.json of lm-evaluation-harness"
            )


def test_a_bad_table_of_json_lines_is_named_with_its_line(
    pair: list[str], command: Callable[..., Any], tmp_path: Path
) -> None:
    table = tmp_path / "toy.jsonl"
    for text, line in (("name: toy\n", 1), ('{"example": 1, "score": 1}\n{"example": 2\n', 2)):
        table.write_text(text)
        command("compare", table, pair[1]).refused(f"{table}:{line}: ")
    command("leaderboard", "import", table, "--leaderboard", tmp_path / "board").refused(f"{table}: ")


def test_a_folder_of_several_and_of_no_results(tmp_path: Path, pair: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "log.eval").write_bytes(b"PK")
    told = {".": "holds 2 result files", "empty": "has no", "none.json": "does not exist", "log.eval": "inspect log"}
    for name, text in told.items():
        with pytest.raises(DataError, match=text):
            read_evaluation(str(tmp_path / name))
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare_files([pair[0], pair[0]])
    for text in ("a/results.json", "a/folder-that-is-not-there"):
        assert names_results(text)
    for text in ("emo", "model=org/name,objective=emo", "published:emo-table3/llama-7b/emo", "./my_loss.py:MyLoss"):
        assert not names_results(text)


def test_the_command(pair: list[str], command: Callable[..., Any], tmp_path: Path) -> None:
    board = tmp_path / "board"
    done = command("compare", *pair, "--leaderboard", board).ok()
    assert "after against before · lm-eval · 200 examples" in done.out
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
