"""Dry runs and starts of runs say which verdicts are possible, and what is missing, by the thresholds of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import parse_overrides
from emobench.kinds.views import KnownMetrics
from emobench.leaderboard.stats.classical import MIN_ITEMS, MIN_SEEDS
from emobench.leaderboard.store import Leaderboard
from emobench.metrics.mauve import SMALL_N
from emobench.registry import find_task, load_kind
from emobench.runs.dry_run import make_outline
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.prospects import Prospect, Prospects, prospects
from emobench.runs.planning.request import Request
from emobench.tasks.families import DUPLICATES

STUDIES = Path(__file__).parents[4] / "leaderboards" / "studies" / "smollm2"
NLU = ("tweet_emotion", "sst2", "trec", "subj", "cr", "rotten_tomatoes", "ag_news", "mmlu")


def planned(*settings: str, **given: Any) -> Prospects:
    """Return the prospects of a request whose data need not be here; nothing is downloaded."""
    chosen: dict[str, Any] = {"suite": "nlu", "objectives": ("emo",), "model": "llama-7b", "offline": True, **given}
    request = Request(settings=parse_overrides(settings), device="cuda", **chosen)
    return prospects(make_plan(request, look=True, check=False))


def by_metric(found: Prospects) -> dict[str, Prospect]:
    return {one.metric: one for one in found.metrics}


def text_data(folder: Path, rows: int, *, documents: int) -> Path:
    """Write test texts of WebText in some documents, and return their folder."""
    folder.mkdir()
    lines = [
        json.dumps({"text": f"text {row} " + "word " * 200, "document": row % documents}) + "\n" for row in range(rows)
    ]
    for split in ("train", "validation", "test"):
        (folder / f"webtext.{split}.jsonl").write_text("".join(lines))
    return folder


def test_the_missions_command_says_what_is_missing_and_its_price() -> None:
    request = Request(suite="nlu", objectives=("emo",), model="llama-7b", device="cuda", offline=True)
    (found,) = make_outline(request).verdicts
    rows = by_metric(found)
    assert list(rows) == ["mean/accuracy", *(f"{task}/accuracy" for task in NLU)]
    assert [one.metric for one in found.metrics if one.primary] == ["mean/accuracy"]
    assert {one.verdict for one in found.metrics} == {"impossible"}
    for one in found.metrics:
        seeds, baseline = one.missing[:2]
        assert seeds == f"1 seed, {MIN_SEEDS} needed: --seed 0 --seed 1 --seed 2"
        assert baseline.startswith("no baseline")
    assert rows["sst2/accuracy"].units == 1821
    assert rows["mmlu/accuracy"].units is None  # how many subjects is known once the data is here
    assert (found.runs, found.needed) == (1, 2 * MIN_SEEDS)
    outline = make_outline(request)
    of_one = sum(line.seconds or 0 for line in outline.lines if line.stage in ("train", "evaluate"))
    assert found.seconds == pytest.approx(5 * of_one)
    notes = outline.notes()
    assert any(line.startswith("Verdicts that 1 objective with 1 seed can give") for line in notes)
    assert any("5 more than this plan" in line and "stored runs" in line for line in notes)


def test_seeds_and_a_baseline_make_a_verdict_possible() -> None:
    two = {"objectives": ("emo", "mle"), "seeds": (0, 1, 2)}
    found = by_metric(planned(**two))
    assert found["sst2/accuracy"].verdict == "possible"
    assert found["mmlu/accuracy"].verdict == "unknown"
    assert found["mean/accuracy"].verdict == "unknown"
    for seeds in ((5,), (5, 7)):
        (missing,) = by_metric(planned(**{**two, "seeds": seeds}))["sst2/accuracy"].missing
        assert missing.startswith(f"{len(seeds)} seed")
        assert missing.endswith({1: "--seed 5 --seed 0 --seed 1", 2: "--seed 5 --seed 7 --seed 0"}[len(seeds)])
    only = planned(objectives=("mle",), seeds=(0, 1, 2))
    (missing,) = by_metric(only)["sst2/accuracy"].missing
    assert missing.startswith("no baseline")
    assert (only.runs, only.needed) == (3, 6)
    base = planned(objectives=("emo", "pretrained"), seeds=(0, 1, 2))
    assert by_metric(base)["sst2/accuracy"].verdict == "possible"
    assert (base.runs, base.needed) == (3, 3)
    alone = planned(objectives=("pretrained",))
    assert not any("more than this plan" in line for line in alone.lines())
    assert "--objective NAME" in by_metric(alone)["sst2/accuracy"].missing[0]


def test_a_primary_metric_that_no_task_has_is_said(tmp_path: Path) -> None:
    """Of a suite file, it is often misspelt."""
    for primary, absent in (("accurcy", "accurcy"), ("accuracy", None)):
        suite = tmp_path / primary / "mine.yaml"
        suite.parent.mkdir()
        suite.write_text(
            f"name: mine\nversion: 1\nprimary: {primary}\nruns:\n  - {{recipe: lm-finetune, tasks: [sst2, trec],"
            " settings: {corpus: wikitext2}}\n"
        )
        found = planned(suite=str(suite), objectives=("emo", "mle"), seeds=(0, 1, 2))
        assert found.absent == absent
        assert any("accurcy" in line for line in found.lines()) == (absent is not None)


@pytest.mark.parametrize("limit", [MIN_ITEMS - 1, MIN_ITEMS])
def test_too_few_units_give_no_verdict(limit: int) -> None:
    found = by_metric(planned(objectives=("emo", "mle"), seeds=(0, 1, 2), limit=limit))
    assert found["sst2/accuracy"].verdict == ("possible" if limit == MIN_ITEMS else "impossible")


@pytest.mark.parametrize(
    ("rows", "documents", "mauve", "perplexity"),
    [
        (SMALL_N, SMALL_N, "possible", "possible"),
        (SMALL_N - 1, 500, "impossible", "possible"),
        (SMALL_N, MIN_ITEMS - 1, "impossible", "impossible"),
    ],
)
def test_local_texts_are_counted(tmp_path: Path, rows: int, documents: int, mauve: str, perplexity: str) -> None:
    data = text_data(tmp_path / "data", rows, documents=documents)
    chosen: dict[str, Any] = {"suite": "generation", "model": "gpt2", "objectives": ("emo", "mle"), "seeds": (0, 1, 2)}
    found = by_metric(planned("tasks=webtext", data_dirs=(data,), **chosen))
    assert (found["webtext/mauve"].verdict, found["webtext/ppl_test"].verdict) == (mauve, perplexity)
    assert found["webtext/mauve"].primary
    assert (found["webtext/mauve"].examples, found["webtext/mauve"].units) == (rows, min(rows, documents))
    assert found["webtext/mauve_star"].verdict == "descriptive"


def test_a_judge_that_was_not_chosen_is_missing() -> None:
    found = by_metric(planned(suite="alpaca-eval", objectives=("emo", "mle"), seeds=(0, 1, 2)))
    assert found["alpaca_eval/win_rate"].primary
    assert found["alpaca_eval/win_rate"].verdict == "impossible"
    assert "judge.name" in found["alpaca_eval/win_rate"].missing[0]
    judged = planned("judge.name=alpaca-eval", suite="alpaca-eval", objectives=("emo", "mle"), seeds=(0, 1, 2))
    assert by_metric(judged)["alpaca_eval/win_rate"].verdict != "impossible"


def test_equal_instructions_are_one_unit(tmp_path: Path) -> None:
    rows = [{"instruction": f"Name colour {row % 12}.", "output": f"It is red {row}."} for row in range(20)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for name in ("responses.train", "responses.validation", "instructions.test"):
        (tmp_path / f"{name}.jsonl").write_text(lines)
    found = by_metric(planned(suite="instruct", model="gpt2", objectives=("emo", "mle"), data_dirs=(tmp_path,)))
    assert (found["instructions/rougeL"].examples, found["instructions/rougeL"].units) == (20, 12)


def test_the_metrics_are_those_that_entries_have() -> None:
    """Those with a verdict: others describe, are secondary, or repeat one."""
    seen = set()
    for entry in Leaderboard(STUDIES).entries():
        (task, *_), suite = entry.protocols, entry.suite.name
        if (suite, task) in seen:
            continue
        seen.add((suite, task))
        task_file = f"generation/{task}" if suite == "generation" else task
        found = find_task(task_file)
        tested = load_kind(found.kind).view(KnownMetrics)
        assert tested is not None
        known = tested.metrics(found)
        deciding = {name for name, one in known.items() if not isinstance(one, str) and one.higher_is_better is not None
                    and not one.secondary and DUPLICATES.get(name) not in known}  # fmt: skip
        own = {
            m.partition("/")[2] for m in entry.families if m.startswith(f"{task}/") and not entry.metrics[m].secondary
        }
        assert deciding == own
    assert seen


def test_the_default_run_says_so_in_a_dry_run(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("run", "--dry-run", "--json", "--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board")
    assert done.code == 0, done.err
    (found,) = done.json["verdicts"]
    assert {one["metric"]: one["verdict"] for one in found["metrics"]}["oracle-language/total_variation"] == "possible"
    assert any("total_variation (primary)" in line for line in done.json["notes"])


def test_the_start_of_a_run_says_so(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--data-dir", small_data)
    rules = ("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8")
    given = ("--suite", "lm-quick", "--model", small_model, *places, *rules, "--limit", 4, "--set", "mauve.seeds=[0]")
    short = ("--set", "recipe.max_length=32", "--set", "recipe.max_tokens=256", "--set", "recipe.epochs=1")
    alone = command("evaluate", *given, "--offline", "--json").ok()
    assert "no verdict" not in alone.err, "an evaluation alone plans no comparison"
    done = command("run", "--objective", "mle", "--seed", 0, *given, *short, "--offline", "--json").ok()
    assert "1 seed, 3 needed" in done.err
    assert "4 sampling units (documents, passages), 10 needed; 4 texts, 1,000 needed" in done.err


def test_a_run_says_at_its_start_only_what_gets_no_verdict() -> None:
    mixed = planned("generation.limit=400", suite="generation", objectives=("emo", "mle"), seeds=(0, 1, 2))
    text = "\n".join(mixed.lines(impossible=True))
    assert "mauve" in text
    assert "rouge1" in "\n".join(mixed.lines())
    assert "rouge1" not in text
    assert planned("tasks=[sst2]", objectives=("emo", "mle"), seeds=(0, 1, 2)).lines(impossible=True) == []
