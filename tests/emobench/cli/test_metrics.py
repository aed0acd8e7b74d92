"""`emobench metrics`: lists, shows and checks what is there, and writes a package that passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emobench
from emobench.registry import load_metric
from emobench.tasks.scores import Score
from emobench.testing.metric_checks import run_metric_checks

BUILT_IN = {"coherence", "distinct", "mauve", "ppl-oracle", "repetition", "rouge", "self-bleu"}


def test_what_is_installed_is_listed_and_shown(command: Callable[..., Any]) -> None:
    listed = {one["name"]: one for one in command("metrics", "list", "--json").json}
    assert listed.keys() >= BUILT_IN
    assert listed["ppl-oracle"]["metrics"] == {
        "ppl_oracle": {"unit": "perplexity", "better": "lower", "secondary": False}
    }
    assert all(one["summary"] for one in listed.values())
    assert "rougeL: fraction, better: higher" in command("metrics", "show", "rouge").out
    command("metrics", "show", "rogue").refused("did you mean 'rouge'?")


def test_the_metrics_of_entries_are_defined(command: Callable[..., Any]) -> None:
    listed = command("metrics", "list").out
    assert "Other metrics of entries" in listed
    assert "total_variation" in listed
    shown = command("metrics", "show", "reverse_cross_entropy").out
    assert "Reverse cross-entropy\n\n-sum Q log P in nats per token" in shown
    assert "unit fraction, better: higher, range: 0 to 100 %" in command("metrics", "show", "mauve_star").out
    assert "unit nats, better: lower, range: 0 or more" in shown
    assert command("metrics", "show", "ppl_test", "--json").json["title"] == "Test perplexity"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_metrics_keep_the_contract(name: str) -> None:
    found = {one.name: (one.status, one.found) for one in run_metric_checks(load_metric(name).component)}
    assert {status for status, _ in found.values()} <= {"ok", "skipped"}, found
    assert found["scores"][0] == "ok"


class Words(emobench.Metric):
    """The number of words. Own."""

    name = "words"
    higher_is_better = None
    unit = "words"

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return np.array([[float(len(text.split())) for text in run] for run in texts.continuations])


class Negative(Words):
    unit = "fraction"

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return -super().values(texts, context)


class Counting(Words):
    calls = 0

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        Counting.calls += 1
        return super().values(texts, context) + Counting.calls


class Relative(Words):
    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return super().values(texts, context) / len(texts.ids)


class Divided(Words):
    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return 1 / super().values(texts, context)


class Undeclared(Words):
    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return super().values(texts, context) * len(context.model("judge").tokenizer)


class Renamed(Words):
    def score(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> Mapping[str, Score]:
        (score,) = super().score(texts, context).values()
        return {"word": score}


@pytest.mark.parametrize(
    ("metric", "check", "text"),
    [
        (Negative, "scores", "which is not a fraction"),
        (Renamed, "scores", "It gives word, and its `measures` are words."),
        (Undeclared, "scores", "It asks for the model 'judge'"),
        (Counting, "repeatable", "Words changed at the second call"),
        (Relative, "independence", "changes with the other prompts"),
        (Divided, "empty samples", "a value is not finite"),
    ],
)
def test_a_broken_promise_is_named(metric: type[Words], check: str, text: str) -> None:
    assert all(one.status == "ok" for one in run_metric_checks(Words()))
    found = {one.name: one for one in run_metric_checks(metric())}
    assert found[check].status == "failed"
    assert text in found[check].found


def test_a_new_package_says_which_of_its_tests_are_of_the_example(command: Callable[..., Any], tmp_path: Path) -> None:
    """In the test file and in the README of each kind of package."""
    for kind in ("metric", "objective", "judge"):
        name = f"my-{kind}"
        command(f"{kind}s", "new", name, "--directory", tmp_path).ok()
        (tests,) = (tmp_path / name / "tests").glob("*.py")
        kept, mark, example = tests.read_text().partition("# What follows tests the example")
        assert mark
        assert "def test_contract" in kept
        assert example.count("def test_") == (2 if kind == "metric" else 1)
        readme = (tmp_path / name / "README.md").read_text()
        assert f"example, and fail once the {kind} is another: replace them" in readme


def test_a_package_here_that_is_not_installed_is_told_how(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    for kind, known in (("metric", "mauve"), ("objective", "emo"), ("judge", "pandalm")):
        name = f"my-{kind}"
        command(f"{kind}s", "new", name).ok()
        for given in (name, f"./{name}"):
            told = f"The {kind} '{name}' is not installed: pip install -e ./{name}, and give its name, {name}."
            command(f"{kind}s", "check", given).refused(told)
        (tmp_path / known).mkdir()
        command(f"{kind}s", "check", f"./{known}").refused(f"'./{known}' is a path; expected the name of the {kind}")
        command(f"{kind}s", "check", "./bare").refused(
            f"'./bare' is a path; expected the name of an installed {kind}: "
        )


@pytest.mark.slow
def test_a_new_metric_passes_its_tests_and_the_check(command: Callable[..., Any], tmp_path: Path) -> None:
    written = command("metrics", "new", "my-words", "--directory", tmp_path)
    assert (written.code, written.err) == (0, "")
    command("metrics", "new", "my-words", "--directory", tmp_path).refused("exists; give another name")
    command("metrics", "new", "rouge", "--directory", tmp_path).refused("'rouge' is taken, by emobench")
    target, folder = tmp_path / "installed", tmp_path / "my-words"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, folder], check=True)
    environment = os.environ | {"PYTHONPATH": str(target), "COLUMNS": "200"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "my-words(shortest=2): 5 ok." in run("emobench", "metrics", "check", "my-words(shortest=2)")
    assert "my-words: letters, better: neither" in run("emobench", "metrics", "show", "my-words")
    assert "passed" in run("pytest", "-q", "-p", "no:cacheprovider", "tests")
