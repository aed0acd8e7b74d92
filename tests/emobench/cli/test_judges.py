"""`emobench judges`: lists, shows and checks what is there, and writes a package that passes its own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import emobench
from emobench.registry import judge_names, load_judge
from emobench.testing.judge_checks import run_judge_checks


def test_what_is_installed_is_listed_and_shown(command: Callable[..., Any]) -> None:
    listed = {one["name"]: one for one in command("judges", "list", "--json").json}
    assert listed["pandalm"]["model"] == "WeOpenML/PandaLM-7B-v1"
    assert listed["mt-bench"]["reads"] == "one response"
    assert "### Response 1:\nSeven is prime." in command("judges", "show", "pandalm").out
    assert command("judges", "show", "auto-j", "--json").json["options"]["max_tokens"] == 1024
    command("judges", "show", "pandaml").refused("did you mean 'pandalm'?")


@pytest.mark.parametrize("name", judge_names())
def test_built_in_judges_keep_the_contract(name: str) -> None:
    if name == "alpaca-eval":
        pytest.importorskip("alpaca_eval", reason="needs the package alpaca-eval", exc_type=ImportError)
    found = {one.name: (one.status, one.found) for one in run_judge_checks(load_judge(name).component)}
    assert {status for status, _ in found.values()} <= {"ok", "skipped"}, found


class Words(emobench.PairJudge):
    """Which response is clearer. Own."""

    name = "words"
    model = "a-judge"
    examples: ClassVar = {"1": 1.0, "2": 0.0}
    prompt = "{}\n1: {}\n2: {}"

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        return emobench.JudgeRequest(self.prompt.format(pair.instruction, pair.first, pair.second))

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        return {"1": 1.0, "2": 0.0}.get(reply.text)


class Told(Words):
    def request(self, pair: emobench.Pair) -> Any:
        return self.prompt.format(pair.instruction, pair.first, pair.second)


class Answered(Words):
    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        text = super().request(pair).prompt
        assert isinstance(text, str)
        return emobench.JudgeRequest(({"role": "user", "content": text}, {"role": "assistant", "content": "It is"}))


class FilledTwice(Words):
    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        text = "{instruction}\n1: {output_1}\n2: {output_2}"
        for field, value in {"instruction": pair.instruction, "output_2": pair.second, "output_1": pair.first}.items():
            text = text.replace(f"{{{field}}}", value)
        return emobench.JudgeRequest(text)


class Named(Words):
    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        text = super().request(pair).prompt
        return emobench.JudgeRequest(f"{text}\nThe longer one has {max(len(pair.first), len(pair.second))}, "
                                     f"the first {len(pair.first)}.")  # fmt: skip


class TiesByDefault(Words):
    def preference(self, reply: emobench.JudgeReply) -> float | None:
        return {"1": 1.0, "2": 0.0}.get(reply.text, 0.5)


class Misread(Words):
    examples: ClassVar = {"1": 1.0, "[[2]]": 0.0}


class First(Words):
    def preference(self, reply: emobench.JudgeReply) -> float | None:
        found = re.search("[12]", reply.text)
        return None if found is None else {"1": 1.0, "2": 0.0}[found[0]]


@pytest.mark.parametrize(
    ("judge", "check", "text"),
    [
        (First, "quoted verdicts", "It reads 'It claims: \"1\" That is wrong.\\n\\n2' as 1.0; expected 0.0 or None"),
        (Told, "request", "`request` gives a str"),
        (Answered, "request", "The last of its messages is not the user's"),
        (FilledTwice, "texts", "is in the prompt"),
        (Named, "order", "differ in more than the order of the responses"),
        (TiesByDefault, "other replies", "It reads '' as 0.5"),
        (Misread, "examples", "It reads '[[2]]' as None; its `examples` have 0.0"),
    ],
)
def test_a_broken_promise_is_named(judge: type[Words], check: str, text: str) -> None:
    assert all(one.status == "ok" for one in run_judge_checks(Words()))
    found = {one.name: one for one in run_judge_checks(judge())}
    assert found[check].status == "failed"
    assert text in found[check].found


@pytest.mark.slow
def test_a_new_judge_passes_its_tests_and_the_check(command: Callable[..., Any], tmp_path: Path) -> None:
    written = command("judges", "new", "my-judge", "--directory", tmp_path)
    assert (written.code, written.err) == (0, "")
    command("judges", "new", "my-judge", "--directory", tmp_path).refused("exists; give another name")
    command("judges", "new", "pandalm", "--directory", tmp_path).refused("'pandalm' is taken, by emobench")
    target, folder = tmp_path / "installed", tmp_path / "my-judge"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, folder], check=True)
    environment = os.environ | {"PYTHONPATH": str(target), "COLUMNS": "200"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "my-judge: 7 ok." in run("emobench", "judges", "check", "my-judge")
    assert "Reply with one word: 1, 2 or tie." in run("emobench", "judges", "show", "my-judge")
    assert "passed" in run("pytest", "-q", "-p", "no:cacheprovider", "tests")
