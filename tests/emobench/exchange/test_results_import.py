"""Files that lm-evaluation-harness wrote become entries; files that it did not write become sentences."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.errors import ConfigError, DataError, UserError
from emobench.exchange.result_files import ImportedModel, find_results, import_each, import_results
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import entry_examples
from emobench.leaderboard.store import Leaderboard

ALONE = ImportedModel()
TWO = ImportedModel("base", "emo", (0, 1))


@pytest.fixture
def board(tmp_path: Path) -> Leaderboard:
    return Leaderboard(tmp_path / "board")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results_2026-01-01T00-00-00.json"


@pytest.fixture
def imported(board: Leaderboard, runs: Path, path: Path) -> Callable[..., Entry]:
    """Return a function that imports the smallest results file, with these changes."""

    def imported(**changes: Any) -> Entry:
        path.write_text(tiny(**changes))
        return import_results([path], board, runs, ALONE).entry

    return imported


def tiny(**changes: Any) -> str:
    """Return the smallest results file."""
    given = {"results": {"t": {"alias": "t", "acc,none": 0.5, "acc_stderr,none": 0.1}}, "date": 1.8e9}
    return json.dumps({**given, **changes})


@pytest.mark.slow
def test_every_number_of_a_real_file_is_there(results_files: list[Path], board: Leaderboard, runs: Path) -> None:
    for path in results_files:
        data = json.loads(path.read_text())
        entry = import_results([path], board, runs, ALONE).entry
        expected = {
            f"{task}/{key.removesuffix(',none')}": value
            for task, values in data["results"].items()
            for key, value in values.items()
            if "," in key and "_stderr" not in key
        }
        assert {key: metric.mean for key, metric in entry.metrics.items()} == expected
        assert len(expected) == 9
        assert entry.missing == {}
        for key, metric in entry.metrics.items():
            task, name = key.split("/")
            values = data["results"][task]
            error = values[f"{name.partition(',')[0]}_stderr,{name.partition(',')[2] or 'none'}"]
            if error in ("N/A", 0):
                assert metric.ci95 is None
            else:
                assert metric.ci95 is not None
                low, high = metric.mean - 1.959964 * error, metric.mean + 1.959964 * error
                assert metric.ci95 == pytest.approx((max(low, 0), min(high, 1)), abs=1e-6)
                assert metric.ci95_of == "items"
            assert metric.n == (40 if task == "tiny_group" else 20)
            assert metric.higher_is_better == (task != "tiny_ppl")


@pytest.mark.slow
def test_what_a_real_file_says_of_itself_is_kept(results_files: list[Path], board: Leaderboard, runs: Path) -> None:
    data = json.loads(results_files[0].read_text())
    entry = import_results([results_files[0]], board, runs, ALONE).entry
    assert (entry.kind, str(entry.suite), entry.untrained) == ("imported", "lm-eval v1", True)
    assert {task: name.partition("@")[0] for task, name in entry.protocols.items()} == {
        "tiny_sent": "lm-eval-v1.0-2-shot",
        "tiny_two": "lm-eval-v2-0-shot",
        "tiny_gen": "lm-eval-v1.0-0-shot",
        "tiny_ppl": "lm-eval-v1.0-0-shot",
        "tiny_group": "lm-eval-v3.0",
    }
    assert entry.provenance.packages["lm-eval"] == data["lm_eval_version"]
    assert entry.provenance.data["tiny_sent"].startswith(f"sha256:{data['task_hashes']['tiny_sent']}")
    assert re.fullmatch("before#[0-9a-f]{8}", entry.model.name)  # of a folder its last part
    assert entry.model.source == entry.model.name
    assert entry.model.parameters == data["config"]["model_num_parameters"]
    assert "seeds: random 0, numpy 1234, torch 1234, few-shot 1234" in (entry.source.cite or "")
    assert entry.metrics["tiny_group/acc"].flags == ("group_of_2_tasks",)
    assert entry.metrics["tiny_sent/acc"].flags == ()
    units = {key: metric.unit for key, metric in entry.metrics.items()}
    assert units["tiny_gen/exact_match,first-word"] == "fraction"
    assert units["tiny_ppl/word_perplexity"] == "perplexity"
    assert units["tiny_ppl/bits_per_byte"] == "bits per byte"


@pytest.mark.slow
def test_two_imported_models_are_paired_example_by_example(
    results_files: list[Path], board: Leaderboard, runs: Path
) -> None:
    before, after = (
        import_results([path], board, runs, ImportedModel("base", objective, (0,))).entry
        for path, objective in zip(results_files, ("mle", "emo"), strict=True)
    )
    assert differences(before, after) == []
    (left,), (right,) = entry_examples(before, runs), entry_examples(after, runs)
    assert left.keys() == right.keys()
    # F1 is no mean of examples.
    assert left.keys() == before.metrics.keys() - {"tiny_two/f1"}
    for entry, examples in ((before, left), (after, right)):
        for name, values in examples.items():
            assert len(values) == 20
            value, weight = np.array(list(values.values())).T
            mean = np.average(value, weights=weight)
            got = math.exp(mean) if name.endswith("perplexity") else mean
            assert got == pytest.approx(entry.metrics[name].mean, rel=1e-9)
    assert left["tiny_ppl/word_perplexity"].keys() == right["tiny_ppl/word_perplexity"].keys()
    assert {weight for _, weight in left["tiny_ppl/word_perplexity"].values()} == {3.0}


@pytest.mark.slow
def test_samples_found_later_supersede(
    results_files: list[Path], board: Leaderboard, runs: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone" / results_files[0].name
    alone.parent.mkdir()
    shutil.copy(results_files[0], alone)
    first = import_results([alone], board, runs, ALONE)
    assert (first.paired, first.entry.runs[0].examples) == (0, None)
    second = import_results([results_files[0]], board, runs, ALONE)
    assert (second.added, second.paired, second.entry.supersedes) == (True, 8, first.entry.id)
    assert second.replaced == first.entry
    third = import_results(
        [results_files[0]], board, runs, ImportedModel("base", "emo(temperature=2)", (7,)), renamed=True
    )
    assert third.entry.supersedes == second.entry.id
    assert third.entry.objective.label == "emo(temperature=2)"
    assert (third.entry.model.name, third.entry.seeds, third.entry.runs[0].seed) == ("base", (7,), 7)
    assert [entry.id for entry in board.entries()] == [third.entry.id]


@pytest.mark.slow
def test_files_of_several_seeds_are_one_entry(results_files: list[Path], board: Leaderboard, runs: Path) -> None:
    subject = ImportedModel("base", "emo", (3, 5))
    done = import_results(results_files, board, runs, subject)
    entry = done.entry
    assert (entry.seeds, [run.seed for run in entry.runs], done.paired) == ((3, 5), [3, 5], 8)
    both = [json.loads(path.read_text())["results"] for path in results_files]
    for name, metric in entry.metrics.items():
        task, _, key = name.partition("/")
        values = [one[task][key if "," in key else f"{key},none"] for one in both]
        assert metric.values == tuple(values)
        assert metric.mean == pytest.approx(np.mean(values))
        assert metric.std == pytest.approx(np.std(values, ddof=1))
    covered = {name: metric.ci95_of for name, metric in entry.metrics.items()}
    assert covered["tiny_ppl/word_perplexity"] == "seeds and items"
    assert covered["tiny_two/f1"] == "seeds"
    assert entry.metrics["tiny_group/acc"].flags == ("group_of_2_tasks",)
    left, right = entry_examples(entry, runs)
    assert left["tiny_sent/acc"].keys() == right["tiny_sent/acc"].keys()
    assert all(path.name in (entry.source.cite or "") for path in results_files)
    assert not import_results(results_files, board, runs, subject).added
    assert import_results(results_files[::-1], board, runs, ImportedModel("base", "emo", (5, 3))).added


@pytest.mark.slow
def test_altered_samples_are_left_behind(
    results_files: list[Path], board: Leaderboard, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(results_files[0].parent, tmp_path / "out")
    path = tmp_path / "out" / results_files[0].name
    (samples,) = path.parent.glob("samples_tiny_ppl_*")
    lines = samples.read_text().splitlines()
    samples.write_text("\n".join(lines[:-1]) + "\n")  # the mean of 19 is not that of 20
    done = import_results([path], board, runs, ALONE)
    assert done.paired == 6
    samples.write_text("\n".join([*lines[:-1], lines[-1][:40]]))
    cut = import_results([path], Leaderboard(tmp_path / "other"), runs, ALONE)
    assert cut.paired == 0
    assert f"{samples}:20: not a sample in JSON" in cut.notes[0]


def test_seeds_that_do_not_fit_are_refused(board: Leaderboard, runs: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"results_{name}.json" for name in "ab"]
    for path, shots in zip(paths, (2, 5), strict=True):
        path.write_text(tiny(**{"n-shot": {"t": shots}}))
    assert import_each(paths, ALONE) == [[paths[0]], [paths[1]]]
    assert import_each(paths, TWO) == [paths]
    assert import_each(paths[:1], ImportedModel(None, "emo", (0,))) == [paths[:1]]
    for given, told in (
        (ImportedModel("base", "emo", (0,)), "for 2 files; give each file its own seed"),
        (ImportedModel("base", "emo", (1, 1)), "for 2 files; give each file its own seed"),
        (ImportedModel(None, "emo", (0, 1)), "add --model NAME"),
        (ImportedModel("base", "pretrained", (0, 1)), "add --objective NAME"),
    ):
        with pytest.raises(ConfigError, match=told):
            import_each(paths, given)
    for given, told in (
        (paths, "its tool, protocol, data or precision differs from that of"),
        (paths[:1] * 2, "the same results are given for two seeds"),
    ):
        with pytest.raises(DataError, match=told):
            import_results(given, board, runs, TWO)
    assert not board.root.exists()


def test_seeds_of_one_entry_are_of_one_tool(board: Leaderboard, runs: Path, tmp_path: Path) -> None:
    scores = [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"value": 0.5}}}]
    log = {"status": "success", "eval": {"task": "t", "model": "m"}, "results": {"scores": scores}}
    result = {"evaluation_name": "t", "metric_config": {"metric_name": "acc"}, "score_details": {"score": 0.5}}
    contents = [json.loads(tiny()), log, {"schema_version": "0.3.0", "evaluation_results": [result]}]
    paths = [tmp_path / f"{i}.json" for i in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_text(json.dumps(content))
    for one, other in itertools.permutations(paths, 2):
        with pytest.raises(DataError, match="its tool"):
            import_results([one, other], board, runs, TWO)


def test_a_number_that_one_seed_lacks_is_missing(board: Leaderboard, runs: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"results_{name}.json" for name in "ab"]
    for path, value in zip(paths, (0.25, "N/A"), strict=True):
        path.write_text(tiny(results={"t": {"acc,none": 0.5, "em,none": value}}))
    entry = import_results(paths, board, runs, TWO).entry
    assert (entry.metrics.keys(), entry.missing) == ({"t/acc"}, {"t/em": "no number in results_b.json"})
    assert (entry.metrics["t/acc"].values, entry.metrics["t/acc"].n) == ((0.5, 0.5), None)


def seed_files(root: Path, **of_seeds: list[Any]) -> list[Path]:
    """Write a results file for each of two seeds, which take their values in turn."""
    paths = [root / f"results_{name}.json" for name in "ab"]
    for i, path in enumerate(paths):
        path.write_text(tiny(**{name.replace("_", "-"): values[i] for name, values in of_seeds.items()}))
    return paths


def with_samples(path: Path) -> None:
    hashes = {"prompt_hash": "p", "target_hash": "t", "metrics": ["acc"]}
    rows = [{"doc_id": i, "doc": f"d{i}", "doc_hash": f"d{i}", **hashes, "acc": i % 2} for i in range(20)]
    (path.with_name(f"samples_t_{path.stem[-1]}.jsonl")).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_files_are_on_a_board_once(board: Leaderboard, runs: Path, tmp_path: Path) -> None:
    one, other = seed_files(tmp_path, date=[1.8e9, 1.7e9])
    first = import_results([one], board, runs, ALONE)
    assert (first.added, first.replaced, first.paired) == (True, None, 0)
    second = import_results([other], board, runs, ALONE)
    assert (second.added, second.replaced) == (True, None)
    again = import_results([one], board, runs, ALONE)
    assert (again.added, again.replaced, again.entry) == (False, None, first.entry)
    with_samples(one)
    found = import_results([one], board, runs, ALONE)
    assert (found.added, found.replaced, found.paired, found.entry.supersedes) == (True, first.entry, 1, first.entry.id)
    again = import_results([one], board, runs, ALONE)
    assert (again.added, again.paired, again.entry) == (False, 1, found.entry)
    (values,) = entry_examples(found.entry, runs)
    assert sorted(values["t/acc"].values()) == [(0.0, 1.0)] * 10 + [(1.0, 1.0)] * 10
    assert sorted(entry.id for entry in board.entries()) == sorted([second.entry.id, found.entry.id])


def test_a_name_is_changed_only_if_that_is_asked_for(board: Leaderboard, runs: Path, tmp_path: Path) -> None:
    one, other = seed_files(tmp_path, date=[1.8e9, 1.7e9])
    import_results([one], board, runs, ImportedModel("base", "emo", (0,)))
    for given in (("base", "emo", (1,)), ("base", "mle", (0,)), ("more", "emo", (0,))):
        with pytest.raises(DataError, match="add --renamed"):
            import_results([one], board, runs, ImportedModel(*given))
    with pytest.raises(DataError, match="give each file the name"):
        import_results([one, other], board, runs, ImportedModel("base", "emo", (1, 0)), renamed=True)
    both = import_results([one, other], board, runs, TWO)  # the same name for the file that both entries hold
    assert (both.added, both.replaced) == (True, None)
    with pytest.raises(DataError, match="give each file the name"):
        import_results([other], board, runs, ImportedModel("base", "emo", (0,)), renamed=True)
    fresh = Leaderboard(tmp_path / "fresh")
    old = import_results([one], fresh, runs, ImportedModel("base", "emo", (0,))).entry
    renamed = import_results([one], fresh, runs, ImportedModel("more", "emo", (0,)), renamed=True)
    assert (renamed.replaced, renamed.entry.model.name) == (old, "more")


@pytest.mark.parametrize(
    ("counts", "expected"), [((10, 10), 10), ((10, None), None), ((None, 10), None), ((1, 1), 1), ((None, None), None)]
)
def test_n_of_several_seeds_is_what_all_files_count(
    counts: tuple[int | None, ...], expected: int | None, board: Leaderboard, runs: Path, tmp_path: Path
) -> None:
    results = [{"t": {"acc,none": 0.0, "sample_len": count}} for count in counts]
    entry = import_results(seed_files(tmp_path, results=results, date=[1.8e9, 1.7e9]), board, runs, TWO).entry
    metric = entry.metrics["t/acc"]
    assert (metric.values, metric.mean, metric.std, metric.n) == ((0.0, 0.0), 0.0, 0.0, expected)
    assert datetime.fromisoformat(entry.provenance.created).timestamp() == 1.8e9


def test_a_perplexity_of_several_seeds_has_examples(board: Leaderboard, runs: Path, tmp_path: Path) -> None:
    """The examples are nats for each word; the value is the exponential of their weighted mean."""
    draw = np.random.default_rng(0)
    nats, words = draw.uniform(2, 3, (2, 30)), draw.integers(5, 20, 30)
    values = [float(np.exp(np.average(of, weights=words))) for of in nats]
    paths = seed_files(tmp_path, results=[{"t": {"word_perplexity,none": value}} for value in values])
    for path, of in zip(paths, nats, strict=True):
        rows = [
            {"doc_id": i, "doc": f"d{i}", "doc_hash": f"d{i}", "prompt_hash": "p", "target_hash": "t"}
            | {"metrics": ["word_perplexity"], "word_perplexity": [-n * int(w), int(w)]}
            for i, (n, w) in enumerate(zip(of, words, strict=True))
        ]
        path.with_name(f"samples_t_{path.stem[-1]}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = import_results(paths, board, runs, TWO)
    metric = done.entry.metrics["t/word_perplexity"]
    assert (done.paired, metric.unit, metric.ci95_of) == (1, "perplexity", "seeds and items")
    assert metric.values == pytest.approx(values)
    assert metric.std == pytest.approx(np.std(values, ddof=1))
    kept = [entry_examples(done.entry, runs)[i]["t/word_perplexity"] for i in range(2)]
    for of, examples in zip(nats, kept, strict=True):
        expected = sorted(zip(of, words, strict=True))
        assert np.array(sorted(examples.values())) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("metric", "value", "error", "expected"),
    [
        ("acc", 0.5, 0.1, (0.5 - 0.1959964, 0.5 + 0.1959964)),
        ("acc", 0.9, 0.1, (0.9 - 0.1959964, 1.0)),
        ("acc", 0.1, 0.1, (0.0, 0.1 + 0.1959964)),
        ("bleu", 61.5, 1.0, (61.5 - 1.959964, 61.5 + 1.959964)),
        ("bleu", 0.5, 1.0, (0.5 - 1.959964, 0.5 + 1.959964)),
        ("word_perplexity", 9.0, 0.5, (9 - 0.979982, 9 + 0.979982)),
        *(("acc", 0.5, error, None) for error in ("N/A", math.nan, 0, None, True)),
    ],
)
def test_an_interval_of_one_file_is_196_standard_errors(
    metric: str, value: float, error: Any, expected: tuple[float, float] | None, imported: Callable[..., Entry]
) -> None:
    found = imported(results={"t": {f"{metric},none": value, f"{metric}_stderr,none": error}}).metrics[f"t/{metric}"]
    if expected is None:
        assert (found.ci95, found.ci95_of) == (None, None)
        assert "standard error" in (found.ci95_missing or "")
    else:
        assert (found.ci95, found.ci95_of, found.ci95_missing) == (pytest.approx(expected), "items", None)


def test_where_an_entry_comes_from(imported: Callable[..., Entry], path: Path) -> None:
    config = {"model": "hf", "model_args": "pretrained=gpt2", "model_revision": "main", "random_seed": 3}
    config["model_num_parameters"] = 7
    entry = imported(config=config, lm_eval_version="0.4.13", task_hashes={"t": "ab", "u": "cd"})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    parts = [f"lm-evaluation-harness 0.4.13; {path.name} (sha256 {digest[:12]})", "model hf: pretrained=gpt2"]
    parts += ["revision main", "seeds: random 3"]
    assert entry.source.cite == "; ".join(parts)
    assert entry.provenance.data == {"t": "sha256:ab (lm-eval's task_hash)"}
    assert entry.model.parameters == 7
    bare = imported(config={"model_num_parameters": 0}, task_hashes={})
    assert "of an unnamed version" in (bare.source.cite or "")
    assert "model unnamed: None; revision unnamed; seeds: unnamed" in (bare.source.cite or "")
    assert (bare.provenance.data, bare.model.parameters) == ({}, None)


def test_a_protocol_is_what_changes_prompts_and_scores_and_not_where_files_lie(imported: Callable[..., Entry]) -> None:
    def protocol(task: dict[str, Any], **changes: Any) -> str:
        content = {"configs": {"t": task}, "versions": {"t": 1}, "n-shot": {"t": 2}, **changes}
        return imported(**content).protocols["t"]

    config = {"doc_to_text": "{{q}}", "dataset_kwargs": {"data_files": "/a"}, "metadata": {"pretrained": "a"}}
    moved = {"doc_to_text": "{{q}}", "dataset_kwargs": {"data_files": "/b"}, "metadata": {"pretrained": "b"}}
    assert protocol(config) == protocol(moved)
    assert protocol({**config, "dataset_path": "/a"}) == protocol({**config, "dataset_path": "./b"})
    assert protocol({**config, "dataset_path": "org/a"}) != protocol({**config, "dataset_path": "org/b"})
    # Without shots there is nothing that a few-shot seed could draw.
    none = {"n-shot": {"t": 0}}
    assert protocol(config, **none) == protocol(config, config={"fewshot_seed": 1}, **none)
    changed = [
        protocol(config),
        protocol({**config, "doc_to_text": "Q: {{q}}"}),
        protocol(config, versions={"t": 2}),
        protocol(config, **{"n-shot": {"t": 5}}),
        protocol(config, config={"limit": 10}),
        protocol(config, config={"fewshot_seed": 1}),
        protocol(config, chat_template_sha="c0ffee"),
        protocol(config, system_instruction_sha="c0ffee"),
    ]
    assert len(set(changed)) == len(changed)


def test_a_protocol_names_version_and_shots(imported: Callable[..., Entry]) -> None:
    found = imported(configs={"t": {"a": 1, "b": 2}}, versions={"t": 1}, **{"n-shot": {"t": 2}}).protocols["t"]
    assert re.fullmatch("lm-eval-v1-2-shot@[0-9a-f]{6}", found)
    turned = imported(configs={"t": {"b": 2, "a": 1}}, versions={"t": 1}, **{"n-shot": {"t": 2}}).protocols["t"]
    assert turned == found
    assert re.fullmatch("lm-eval@[0-9a-f]{6}", imported().protocols["t"])
    zero = imported(versions={"t": 0}, **{"n-shot": {"t": 0}}).protocols["t"]
    assert zero.partition("@")[0] == "lm-eval-v0-0-shot"


def test_the_protocol_of_a_group_follows_from_its_tasks(imported: Callable[..., Entry]) -> None:
    def protocol(task: dict[str, Any]) -> str:
        held = {"g": ["t", "absent"]}
        results = {"g": {"acc,none": 0.5}, "t": {"acc,none": 0.5}}
        return imported(results=results, configs={"t": task}, group_subtasks=held).protocols["g"]

    assert protocol({"doc_to_text": "a"}) == protocol({"doc_to_text": "a"}) != protocol({"doc_to_text": "b"})


def test_a_chat_template_and_its_turns_are_part_of_a_protocol(imported: Callable[..., Entry]) -> None:
    def protocol(chat: str | None, turns: bool | None) -> str:
        return imported(chat_template_sha=chat, fewshot_as_multiturn=turns).protocols["t"]

    assert len({protocol(chat, turns) for chat in ("a", "b") for turns in (True, False)}) == 4
    assert len({protocol(None, turns) for turns in (True, False, None)}) == 1


def test_what_is_no_number_is_missing_and_never_zero(imported: Callable[..., Entry]) -> None:
    values = {"a": math.nan, "b": math.inf, "c": "N/A", "d": None, "e": True, "f": [0.5], "g": 10**400}
    entry = imported(results={"t": {"acc,none": 0.5, **{f"{name},none": value for name, value in values.items()}}})
    assert entry.metrics.keys() == {"t/acc"}
    shown = ("NaN", "Infinity", '"N/A"', "null", "true", "[0.5]", "1000000")
    for name, text in zip(values, shown, strict=True):
        assert entry.missing[f"t/{name}"].startswith(f"lm-eval has {text}")


def test_percent_is_no_fraction_and_an_old_file_has_no_filters(imported: Callable[..., Entry]) -> None:
    metrics = imported(results={"t": {"acc": 0.25, "acc_stderr": 0.05, "em": 61.5}}).metrics
    assert (metrics["t/acc"].unit, metrics["t/em"].unit) == ("fraction", "score")
    assert metrics["t/acc"].ci95 == pytest.approx((0.25 - 0.098, 0.25 + 0.098), abs=1e-4)
    values = {"rougeL": 0.25, "pass_at_1": 1.0, "prompt_level_strict_acc": 0.0, "rouge1": 25.0, "mcc": 0.5, "bleu": 0.9}
    metrics = imported(results={"t": {f"{name},none": value for name, value in values.items()}}).metrics
    fractions = {name for name, metric in metrics.items() if metric.unit == "fraction"}
    assert fractions == {"t/rougeL", "t/pass_at_1", "t/prompt_level_strict_acc"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"results": {"t": {"acc,no', "not valid JSON"),
        ("[]", "has no `results`"),
        ('{"results": {"t": [1]}}', "has no `results`"),
        ('{"results": {"t": {"acc,none": 0.5}, "u": [1]}}', "has no `results`"),
        ('{"results": {"t": {"acc,none": "N/A"}}}', "has no number under `results`"),
        ('{"results": {"a b": {"acc": 1}, "a_b": {"acc": 1}}}', "two numbers are called 'a_b/acc'"),
        ('{"results": ' + '{"a": ' * 200_000 + "1" + "}" * 200_001, "not valid JSON"),
        ("1" * 5000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (tiny(results={"t": {"acc,none": 2.0}}), "`mean` is 2.0, no fraction"),
        (tiny(results={"t": {"word_perplexity,none": 0.5}}), "`mean` is 0.5, no perplexity"),
        (tiny(results={"t": {"bits_per_byte,none": -2}}), "`mean` is -2.0, no bits per byte"),
        (tiny(results={"t": {"acc,none": 0.5, "acc_stderr,none": -5}}), "lower bound first"),
        (tiny(results={"t": {"acc,none": 0.5, "sample_len": 0}}), "`n` is 0; expected 1 or more"),
        (tiny(date=5), "expected a year from 2000"),
        (tiny(date=1e300), "its date is 1e\\+300; expected"),
    ],
)
def test_a_file_of_something_else_gives_a_sentence(
    content: str | bytes, told: str, board: Leaderboard, runs: Path, path: Path
) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=told) as raised:
        import_results([path], board, runs, ALONE)
    assert str(raised.value).startswith(f"{path}: ")
    assert len(str(raised.value)) < 400
    assert not board.root.exists()
    assert not runs.exists()


@pytest.mark.parametrize("shape", [[], "x", {"t": []}, {"t": {"acc": "x"}}])
def test_facts_of_a_wrong_shape_are_left_out(shape: Any, imported: Callable[..., Entry]) -> None:
    facts = ("configs", "versions", "n-shot", "higher_is_better", "n-samples", "config", "group_subtasks")
    texts = ("task_hashes", "lm_eval_version", "model_name", "git_hash", "date", "chat_template_sha", "groups")
    assert imported(**dict.fromkeys((*facts, *texts), shape)).metrics["t/acc"].mean == 0.5


def test_groups_of_groups_and_of_themselves_end(imported: Callable[..., Entry]) -> None:
    names = [f"t{i}" for i in range(60)]
    held = {name: [names[i + 1 - 60]] * 2 for i, name in enumerate(names)}  # the last one holds the first
    entry = imported(results={name: {"acc,none": 0.5} for name in names}, group_subtasks=held)
    assert len(entry.metrics) == 60
    assert entry.metrics["t3/acc"].flags == ("group_of_2_tasks",)


def test_hostile_names_stay_text_and_leave_the_folder_alone(
    imported: Callable[..., Entry], board: Leaderboard, path: Path
) -> None:
    name = "../../\x1b[31m<script>\ud800\n" + "x" * 10_000
    values = {"acc,none": 0.5, "a b\n,f": 0.25}
    entry = imported(results={name: values}, model_name=name, configs={name: {"task": name}})
    assert [metric.mean for metric in entry.metrics.values()] == [0.5, 0.25]
    assert all(len(key) < 1100 and key.count("/") == 1 for key in entry.metrics)
    assert sorted(path.parent.iterdir()) == sorted([path, board.root])
    assert Leaderboard(board.root).entries() == [entry]


def test_a_place_without_results_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find_results(tmp_path / "none")
    with pytest.raises(UserError, match=r"has no result file; expected results_\*\.json"):
        find_results(tmp_path)
