"""`emobench judge`: responses that are kept, against each other, by a server on the loopback."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from endpoints import both_responses, serving

pytest.importorskip("evalica", reason="needs the package evalica")
TEMPERATURES = (0, 1, 2)


def larger(prompt: str) -> str:
    first, second = both_responses(prompt)
    return "1" if first > second else "2"


@pytest.fixture
def judge(command: Callable[..., Any], instruct: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run `emobench judge` on three entries, which differ in the temperature of their responses."""
    ids = [
        instruct("evaluate", "--set", f"instruct.temperature={t}", "--json").ok().json["entries"][0]["id"]
        for t in TEMPERATURES
    ]
    places = ("--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs", "-q", "--device", "cpu")

    def run(*more: object, entries: list[str] = ids) -> Any:
        return command("judge", *entries, *places, *more)

    return run


def test_a_round_robin_asks_both_orders_of_each_pair_once(
    judge: Callable[..., Any], command: Callable[..., Any], tmp_path: Path
) -> None:
    places = ("--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs")
    with serving(larger) as server:
        given = ("judge.name=pandalm", "judge.model=a-judge", f"judge.url={server.url}")
        settings = [word for one in given for word in ("--set", one)]
        (found,) = judge(*settings, "--json").ok().json["judged"]
        asked = [body["prompt"] for body in server.bodies]
        ids = [writer["entry"] for writer in found["writers"]]
        shown = command("samples", *ids, *places, "--count", 100, "--json").ok().json["samples"][0]
        texts = [[one["text"] for one in row["generated"]] for row in shown["rows"]]
        both = [(place, row[a], row[b]) for place, row in enumerate(texts) for a, b in permutations(range(3), 2)]
        assert len(asked) == len(set(asked)) == len({one for one in both if one[1] != one[2]})
        server.bodies.clear()
        table = judge(*settings).ok().out
        assert not server.bodies
    assert [(duel["first"], duel["second"]) for duel in found["duels"]] == [(0, 1), (0, 2), (1, 2)]
    for duel in found["duels"]:
        a, b = duel["first"], duel["second"]
        wins, losses = (sum(p > q for p, q in ((row[x], row[y]) for row in texts)) for x, y in ((a, b), (b, a)))
        assert (duel["wins"], duel["losses"]) == (wins, losses)
        assert duel["ties"] == len(texts) - wins - losses
        assert duel["win_rate"] == pytest.approx((wins + duel["ties"] / 2) / len(texts))
        assert duel["ci95"][0] <= duel["win_rate"] <= duel["ci95"][1]
    assert (found["instructions"], found["without_verdict"]) == (len(texts), 0)
    assert "95 % interval" in table


def test_what_cannot_be_judged_is_a_sentence(judge: Callable[..., Any]) -> None:
    judge().refused("--set judge.name=NAME")
    judge("--set", "recipe.epochs=1").refused("only judge.* can be set")
    judge("--set", "judge.name=mt-bench", "--set", "judge.url=http://127.0.0.1:1/v1").refused("give a judge of two")
    judge("--set", "judge.name=pandalm", entries=["pretrained"]).refused("two entries or more")


def test_a_judge_without_verdicts_gives_no_table(judge: Callable[..., Any]) -> None:
    with serving(lambda prompt: "I cannot say.") as server:
        done = judge("--set", "judge.name=pandalm", "--set", f"judge.url={server.url}")
    assert done.code == 1
    assert "gave no verdict" in done.err


def test_a_dry_run_counts_what_is_asked_and_asks_nobody(judge: Callable[..., Any]) -> None:
    stopped: list[str] = []

    def down(prompt: str, attempt: int) -> str | None:
        if prompt not in stopped and len(stopped) < 4:
            stopped.append(prompt)
        return None if prompt in stopped else "server_error"

    with serving(larger, down) as server:
        given = ("judge.name=pandalm", "judge.model=a-judge", f"judge.url={server.url}", "judge.retries=0")
        settings = [word for one in (*given, "judge.concurrency=1") for word in ("--set", one)]
        (first,) = judge(*settings, "--dry-run", "--json").ok().json["judging"]
        assert not server.bodies
        assert first["pairs"] == 3 * 6
        assert first["kept"] == 0
        assert judge(*settings).code == 1  # the server goes down after four replies
        (second,) = judge(*settings, "--dry-run", "--json").ok().json["judging"]
        assert (second["kept"], second["requests"]) == (4, first["requests"] - 4)
        server.faults = lambda prompt, attempt: None
        (found,) = judge(*settings, "--json").ok().json["judged"]
        assert found["replies"] == first["requests"]
        assert (found["tokens_read"], found["tokens_written"]) == (7 * found["replies"], 3 * found["replies"])
        (last,) = judge(*settings, "--dry-run", "--json").ok().json["judging"]
        assert (last["kept"], last["requests"], last["tokens_read"]) == (first["requests"], 0, 0)
        assert "no request was sent" in judge(*settings, "--dry-run").ok().out
    texts = [body["prompt"] for body in server.bodies]
    # The estimate is of the prompts' bytes, at three a token; a reply of PandaLM has 512 tokens at most.
    assert first["tokens_read"] == sum(len(text.encode()) // 3 for text in set(texts))
    assert first["tokens_written"] == 512 * first["requests"]
