"""A judge in the pipeline: a real server on the loopback answers, and every number follows from its replies."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from endpoints import Scripted, both_responses, serving

from emobench.leaderboard.store import Leaderboard
from emobench.report.site.runs import RunFiles
from emobench.runs.inspect.recorded_runs import texts_of

TASK = "instructions"
COUNT = 6
KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def key(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def longer(prompt: str) -> str:
    first, second = both_responses(prompt)
    return "1" if len(first) > len(second) else "2"


def judged_by(server: Scripted, *more: str, judge: str = "pandalm") -> list[str]:
    given = [f"judge.name={judge}", "judge.model=a-judge", f"judge.url={server.url}", "judge.retries=1", *more]
    return [word for one in given for word in ("--set", one)]


@pytest.fixture
def judged(instruct: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Evaluate with a judge at a server; returns the entry."""

    def run(server: Scripted, *more: object, judge: str = "pandalm") -> dict[str, Any]:
        return instruct("evaluate", *judged_by(server, judge=judge), *more, "--json").ok().json["entries"][0]

    return run


def means_of(entry: dict[str, Any]) -> dict[str, float]:
    return {name.partition("/")[2]: metric["mean"] for name, metric in entry["metrics"].items()}


def rows_of(tmp_path: Path, entry: dict[str, Any]) -> list[dict[str, Any]]:
    path = tmp_path / "runs" / entry["runs"][0]["samples"][0]["path"]
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_win_rate_follows_from_both_orders_and_is_shown_with_the_responses(
    judged: Callable[..., Any], command: Callable[..., Any], tmp_path: Path
) -> None:
    board, runs = tmp_path / "board", tmp_path / "runs"
    places = ("--leaderboard", board, "--runs", runs)
    with serving(longer) as server:
        entry = judged(server)
    assert len(server.bodies) == 2 * COUNT
    assert {body["model"] for body in server.bodies} == {"a-judge"}
    won = [len(re.sub(r"\s+$", "", row["text"])) > len(row["reference"]) for row in rows_of(tmp_path, entry)]
    means = means_of(entry)
    assert means["win_rate"] == pytest.approx(sum(won) / COUNT)
    assert (means["position_bias"], means["order_agreement"], means["length_bias"]) == (0.5, 1.0, 1.0)
    assert means["parse_failures"] == 0.0
    metric = entry["metrics"][f"{TASK}/win_rate"]
    assert (metric["n"], metric["higher_is_better"]) == (COUNT, True)
    assert (entry["primary"], entry["missing"]) == (f"{TASK}/win_rate", {})
    (folder,) = (runs / "score").iterdir()
    told = [json.loads(line) for line in (folder / "judgements.jsonl").read_text().splitlines()]
    assert [one["preference"] for one in told] == [float(wins) for wins in won]
    assert json.loads((folder / "judge.json").read_text()) == {
        "judge": "pandalm", "models": ["a-judge-2026"], "replies": 12, "tokens_read": 84, "tokens_written": 36,
    }  # fmt: skip

    (shown,) = command("samples", entry["id"], *places, "--count", COUNT, "--json").ok().json["samples"]
    assert [row["generated"][0]["preferred"] for row in shown["rows"]] == [float(one) for one in won]
    assert "judge: " in command("samples", entry["id"], *places).ok().out
    (recorded,) = Leaderboard(board).entries()
    read_texts = lambda entry, run: texts_of(entry, run, runs)  # noqa: E731
    files = RunFiles(runs, (board,), read_texts).of(recorded)
    assert not files["problems"]
    (page,) = files["samples"]
    verdicts = ["A judge prefers it." if one else "A judge prefers the reference." for one in won]
    assert [text["verdict"] for text in page["texts"]] == verdicts[: len(page["texts"])]
    assert page["texts"][1]["prefix"] == "Say 1.\n\nLoud"
    (file,) = (runs / "score").glob("*/judgements.jsonl")
    file.write_text(file.read_text().replace("1.0", "0.0"))
    command("samples", entry["id"], *places).refused("judgements.jsonl")


def test_a_judge_of_first_places_ties(judged: Callable[..., Any]) -> None:
    with serving(lambda prompt: "1") as server:
        entry = judged(server)
    means = means_of(entry)
    assert (means["win_rate"], means["position_bias"], means["order_agreement"]) == (0.5, 1.0, 0.0)
    assert f"{TASK}/length_bias" in entry["missing"]


def test_a_run_that_stops_is_continued_and_nothing_is_judged_twice(
    instruct: Callable[..., Any], judged: Callable[..., Any], tmp_path: Path
) -> None:
    seen: list[str] = []

    def down(prompt: str, attempt: int) -> str | None:
        if prompt not in seen and len(seen) < 5:
            seen.append(prompt)
        return None if prompt in seen else "server_error"

    with serving(longer, down) as server:
        assert instruct("evaluate", *judged_by(server, "judge.concurrency=1")).code == 1
        server.faults = lambda prompt, attempt: None
        server.bodies.clear()
        entry = judged(server)
        again = Counter(body["prompt"] for body in server.bodies)
        assert len(again) == 2 * COUNT - 5
        assert set(again.values()) == {1}
        assert again.keys().isdisjoint(seen)
        server.bodies.clear()
        assert judged(server, "--set", "judge.concurrency=3")["id"] == entry["id"]  # it changes no protocol
        assert not server.bodies
        assert judged(server, "--runs", tmp_path / "other")["metrics"] == entry["metrics"]
        instruct("evaluate").ok()  # another judge, or none, reads the responses that are there
    assert len(list((tmp_path / "runs" / "generate").iterdir())) == 1
    assert len(list((tmp_path / "runs" / "score").iterdir())) == 2


@pytest.mark.parametrize("silent", [1, 12])
def test_replies_without_a_verdict_are_counted_and_too_many_leave_no_metric(
    silent: int, judged: Callable[..., Any]
) -> None:
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "I cannot say." if len(prompts) <= silent else longer(prompt)

    with serving(answer) as server:
        entry = judged(server)
    assert means_of(entry)["parse_failures"] == pytest.approx(silent / 12)
    assert f"gave no verdict to {silent} of 12 requests" in entry["missing"][f"{TASK}/win_rate"]
    assert f"{TASK}/rougeL" in entry["metrics"]


def test_grades_are_averaged(judged: Callable[..., Any]) -> None:
    grades = iter([2, 4, 6, 8, 3, 1])
    with serving(lambda prompt: f"Rating: [[{next(grades)}]]") as server:
        metric = judged(server, judge="mt-bench")["metrics"][f"{TASK}/grade"]
    assert len(server.bodies) == COUNT
    assert (metric["mean"], metric["unit"], metric["n"]) == (4.0, "grade", COUNT)


def test_without_a_judge_the_win_rate_is_missing_and_says_what_to_set(instruct: Callable[..., Any]) -> None:
    entry = instruct("evaluate", "--json").ok().json["entries"][0]
    assert "--set judge.name=NAME" in entry["missing"][f"{TASK}/win_rate"]
    instruct("evaluate", "--set", "judge.model=gpt-4").refused("--set judge.name=NAME")
    instruct("evaluate", "--set", "judge.name=pandaml").refused("did you mean 'pandalm'?")


def test_a_key_is_asked_for_before_a_training_and_secrets_are_in_no_file_and_on_no_terminal(
    instruct: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def refused_once(prompt: str, attempt: int) -> str | None:
        told.append(prompt)
        return "echo" if told[0] == prompt else None

    with serving(longer, refused_once) as server:
        server.message = f"Bad key {KEY} of me:s3cret-word"
        monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("//", "//me:s3cret-word@"))
        words = ["--set", "judge.name=pandalm", "--set", "judge.model=a-judge", "--set", "judge.retries=0"]
        shown = [instruct("evaluate", *words)]
        assert shown[0].code == 1
        assert "Bad key [secret] of [secret]" in shown[0].err
        server.faults = lambda prompt, attempt: None
        shown.append(instruct("evaluate", *words, "--json").ok())
    for setting in (
        "judge.url=http://u:s3cret@127.0.0.1:1/v1",
        "instruct.judge.url=http://127.0.0.1:1/v1?token=s3cret",
    ):
        shown.append(instruct("evaluate", "--set", "judge.name=pandalm", "--set", setting))
        shown[-1].refused("OPENAI_BASE_URL")
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for data in [*written, *((done.out + done.err).encode() for done in shown)]:
        assert KEY.encode() not in data
        assert b"s3cret" not in data
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    named = ("--set", "judge.name=mt-bench-pair")
    instruct("run", "--objective", "mle", *named).refused("Set OPENAI_API_KEY", "judge.backend=local")
    assert "12 requests to a judge" in instruct("evaluate", "--dry-run", *named).ok().out


def test_refused_requests_are_asked_again_with_the_same_command(
    instruct: Callable[..., Any], judged: Callable[..., Any]
) -> None:
    with serving(longer, lambda prompt, attempt: "echo" if attempt == 1 else None) as server:
        server.status, server.message = 422, "too long"
        stopped = instruct("evaluate", *judged_by(server))
        assert stopped.code == 1
        assert "12 of 12 requests" in stopped.err
        assert "422, too long" in stopped.err
        server.bodies.clear()
        entry = judged(server)
        assert len(server.bodies) == 2 * COUNT
    assert not entry["missing"]
    assert server.url not in json.dumps(entry)
    assert "judge.url=URL" in entry["source"]["command"]
    with serving(longer) as other:
        assert judged(other)["protocols"] == entry["protocols"]  # an address identifies nothing
    assert not other.bodies
    assert entry["changes"][TASK].keys() == {"judge.name", "judge.model", "max_new_tokens"}


def test_a_dry_run_counts_requests_and_tokens(instruct: Callable[..., Any]) -> None:
    seeds = ("--objective", "mle", "--seed", "0", "--seed", "1")
    given = ("--set", "judge.name=pandalm", "--set", "judge.url=http://127.0.0.1:1/v1")
    done = instruct("run", *seeds, *given, "--dry-run", "--json").ok()
    lines = [line for line in done.json["plan"] if line["stage"] == "evaluate"]
    assert [line["requests"] for line in lines] == [2 * COUNT] * 2
    assert done.json["totals"]["requests"] == 4 * COUNT
    # PandaLM writes 512 tokens at most, and its prompt has some hundred bytes.
    assert all(2 * COUNT * (512 + 50) < line["request_tokens"] < 2 * COUNT * (512 + 300) for line in lines)


def test_a_local_model_judges(instruct: Callable[..., Any], byte_model: Path, tmp_path: Path) -> None:
    local = ("--set", "judge.name=pandalm", "--set", "judge.backend=local", "--set", f"judge.model={byte_model}")
    # Its context is too short for a prompt and 512 tokens of a reply, or its replies say nothing: both are counted.
    entry = instruct("evaluate", *local, "--json").ok().json["entries"][0]
    assert means_of(entry)["parse_failures"] == 1.0
    assert "gave no verdict to 12 of 12 requests" in entry["missing"][f"{TASK}/win_rate"]
    (folder,) = (tmp_path / "runs" / "score").iterdir()
    assert json.loads((folder / "judge.json").read_text())["models"] == [str(byte_model)]
    instruct("evaluate", "--set", "judge.name=mt-bench-pair", *local[2:]).refused("has no chat template")


def test_a_folder_at_an_endpoint_is_identified_by_its_content(
    instruct: Callable[..., Any], byte_model: Path, small_model: Path
) -> None:
    with serving(longer) as server:
        given = ("--set", "judge.name=pandalm", "--set", f"judge.url={server.url}", "--set")
        for folder in (byte_model, small_model):
            server.bodies.clear()
            entry = instruct("evaluate", *given, f"judge.model={folder}", "--json").ok().json["entries"][0]
            assert {body["model"] for body in server.bodies} == {str(folder)}
            assert str(folder) not in json.dumps({**entry, "model": None})


@pytest.mark.slow
def test_a_run_that_is_killed_ends_as_one_that_is_not(
    judged: Callable[..., Any], byte_model: Path, asked: Path, tmp_path: Path
) -> None:
    process: list[subprocess.Popen[bytes]] = []
    kept = threading.Event()

    def answer(prompt: str) -> str:
        if len(server.bodies) == 8 and not kept.is_set():  # one at a time: the seven before it were kept
            process[0].kill()
            kept.set()
        return longer(prompt)

    with serving(answer) as server:
        places = ("--data-dir", asked, "--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--offline")
        given = ("--suite", "instruct", "--model", byte_model, "--set", "instruct.max_new_tokens=8", *places)
        line = [sys.executable, "-m", "emobench", "evaluate", *given, *judged_by(server, "judge.concurrency=1")]
        process.append(subprocess.Popen([*map(str, line)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        assert process[0].wait(timeout=300) == -9
        assert not list((tmp_path / "board").rglob("*.json"))
        before = {body["prompt"] for body in server.bodies[:7]}
        server.bodies.clear()
        entry = judged(server)
        assert before.isdisjoint(body["prompt"] for body in server.bodies)
        assert len(server.bodies) == 2 * COUNT - 7
        assert judged(server, "--runs", tmp_path / "other")["metrics"] == entry["metrics"]
