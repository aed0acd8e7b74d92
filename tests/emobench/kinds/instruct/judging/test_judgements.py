"""Pairs in both orders: what a verdict is, what is asked, what is kept, and which way a judge leans."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from emobench.core.errors import RunError
from emobench.data.chat_templates import RULES
from emobench.kinds.instruct.judged import (
    Judgement,
    Replies,
    ask_about,
    grades,
    leanings,
    pair_judgements,
    request_key,
    win_rate,
)
from emobench.kinds.instruct.judging.endpoint import Endpoint
from emobench.kinds.instruct.judging.judge import (
    JUDGES,
    GradeJudge,
    JudgeReply,
    JudgeRequest,
    Pair,
    PairJudge,
    local_identity,
)

sys.path.insert(0, str(Path(__file__).parent))
from endpoints import Scripted, serving


class Words(PairJudge):
    """Its prompt is "first|second", and its reply a number."""

    name = "words"
    model = "a-judge"

    def request(self, pair: Pair) -> JudgeRequest:
        return JudgeRequest(f"{pair.first}|{pair.second}", {"max_tokens": 1})

    def preference(self, reply: JudgeReply) -> float | None:
        try:
            return float(reply.text)
        except ValueError:
            return None


class Graded(Words):
    graded = True


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def judged(
    server: Scripted, pairs: dict[str, Pair], path: Path, judge: PairJudge | None = None, **given: int
) -> dict[str, Judgement]:
    endpoint = Endpoint(model="a-judge", url=server.url, **{"retries": 1, "concurrency": 2, **given})
    return {one.id: one for one in judge_pairs(judge or Words(), pairs, endpoint, path)}


def judge_pairs(judge: PairJudge, pairs: dict[str, Pair], endpoint: Endpoint, path: Path) -> list[Judgement]:
    replies = Replies(path)
    asked = ask_about(judge, pairs, endpoint, replies)
    return pair_judgements(judge, pairs, endpoint.identity, replies, {**asked.failed, **asked.refused})


def longer(prompt: str) -> str:
    first, second = prompt.split("|")
    return "1" if len(first) > len(second) else "0"


def test_orders_that_agree_decide_and_others_are_a_tie(tmp_path: Path) -> None:
    replies = {"good|bad": "1", "bad|good": "0", "a|b": "1", "b|a": "1", "win|tie": "1", "tie|win": "0.5"}
    pairs = {"won": Pair("i", "good", "bad"), "lost": Pair("i", "bad", "good")}
    pairs |= {"first": Pair("i", "a", "b"), "half": Pair("i", "win", "tie"), "same": Pair("i", "x", "x")}
    with serving(replies.__getitem__) as server:
        found = judged(server, pairs, tmp_path / "replies")
        asked = Counter(body["prompt"] for body in server.bodies)
    assert {key: one.preference for key, one in found.items()} == {
        "won": 1.0, "lost": 0.0, "first": 0.5, "half": 0.5, "same": 0.5,
    }  # fmt: skip
    assert found["first"] == Judgement("first", 1.0, 0.0, 0.5)
    assert set(asked) == set(replies)  # two equal responses are not asked about
    assert set(asked.values()) == {1}  # "won" and "lost" ask the same two questions


def test_graded_orders_are_averaged(tmp_path: Path) -> None:
    replies = {"a|b": "0.9", "b|a": "0.3"}
    with serving(replies.__getitem__) as server:
        found = judged(server, {"one": Pair("i", "a", "b")}, tmp_path / "replies", Graded())
    assert found["one"].preference == pytest.approx((0.9 + 0.7) / 2)


def test_a_reply_without_a_verdict_is_missing_with_its_reason(tmp_path: Path) -> None:
    replies = {"a|b": "I cannot say.", "b|a": "1", "c|d": "1", "d|c": "0"}
    pairs = {"one": Pair("i", "a", "b"), "two": Pair("i", "c", "d"), "long": Pair("i", "e", "f")}
    with serving(
        lambda prompt: replies.get(prompt, "1"), lambda prompt, attempt: "too_long" if prompt == "e|f" else None
    ) as server:
        found = judged(server, pairs, tmp_path / "replies")
    assert found["one"] == Judgement("one", None, 0.0, None, "the reply has no verdict")
    assert found["two"].preference == 1
    assert found["long"].preference is None
    assert "maximum context length" in found["long"].problem


def test_what_was_judged_before_a_stop_is_not_judged_again(tmp_path: Path) -> None:
    pairs = {str(i): Pair("i", f"{i}" * 3, f"{i}") for i in range(9)}
    path = tmp_path / "replies"
    with serving(longer, lambda prompt, attempt: "server_error" if prompt[0] in "5678" else None) as server:
        with pytest.raises(RunError, match="kept"):
            judged(server, pairs, path, concurrency=1)
        first = Counter(body["prompt"] for body in server.bodies)
        server.faults = lambda prompt, attempt: None
        server.bodies.clear()
        found = judged(server, pairs, path)
        again = {body["prompt"] for body in server.bodies}
    assert {prompt for prompt in first if prompt[0] in "01234"}.isdisjoint(again)
    assert {one.preference for one in found.values()} == {1.0}
    with serving(longer) as server:
        assert judged(server, pairs, path) == found
        assert not server.bodies


def test_a_torn_line_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "replies"
    with serving(longer) as server:
        found = judged(server, {"one": Pair("i", "aa", "b")}, path)
        path.write_bytes(path.read_bytes()[:-20])
        assert judged(server, {"one": Pair("i", "aa", "b")}, path) == found
    assert len(server.bodies) == 3


def test_another_model_or_other_options_are_asked_anew(tmp_path: Path) -> None:
    class Longer(Words):
        def request(self, pair: Pair) -> JudgeRequest:
            return JudgeRequest(f"{pair.first}|{pair.second}", {"max_tokens": 2})

    path, pairs = tmp_path / "replies", {"one": Pair("i", "aa", "b")}
    with serving(longer) as server:
        judged(server, pairs, path)
        judged(server, pairs, path, Longer())
        endpoint = Endpoint(model="another", url=server.url)
        judge_pairs(Words(), pairs, endpoint, path)
    assert len(server.bodies) == 6


def test_a_request_is_known_by_who_answers_and_by_all_that_is_asked() -> None:
    options = {"max_tokens": 1, "temperature": 0}
    asked = JudgeRequest("é", options)
    content = json.dumps(["m", "é", options], sort_keys=True, ensure_ascii=False)
    key = request_key("m", asked)
    assert key == hashlib.sha256(content.encode()).hexdigest()[:32]
    assert key == request_key("m", JudgeRequest("é", dict(reversed(options.items()))))
    chat = JudgeRequest(({"role": "user", "content": "é"},), options)
    others = [("n", asked), ("m", JudgeRequest("e", options)), ("m", JudgeRequest("é", {"max_tokens": 1})), ("m", chat)]
    assert len({key, *(request_key(*one) for one in others)}) == 5
    assert request_key("m", JudgeRequest("\ud800")) != request_key("m", JudgeRequest("?"))


def test_a_key_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with serving(longer) as server:
        judged(server, {"one": Pair("i", "aa", "b")}, tmp_path / "replies")
    assert b"secret" not in (tmp_path / "replies").read_bytes()


def test_a_judge_that_always_takes_the_first_has_a_bias_of_position(tmp_path: Path) -> None:
    pairs = {str(i): Pair("i", "a" * (i + 1), "b" * (9 - i)) for i in range(4)}
    ids = pairs.keys()
    with serving(lambda prompt: "1") as server:
        leaning = leanings(list(judged(server, pairs, tmp_path / "first").values()), pairs)
    assert (leaning.first, leaning.agreement) == (dict.fromkeys(ids, 1.0), dict.fromkeys(ids, 0.0))
    assert leaning.longer == {}
    with serving(longer) as server:
        leaning = leanings(list(judged(server, pairs, tmp_path / "longer").values()), pairs)
    assert (leaning.first, leaning.agreement) == (dict.fromkeys(ids, 0.5), dict.fromkeys(ids, 1.0))
    assert leaning.longer == dict.fromkeys(ids, 1.0)


def test_a_response_is_graded_once_with_its_input(tmp_path: Path) -> None:
    class Grades(GradeJudge):
        name = "grades"
        model = "a-judge"

        def request(self, instruction: str, response: str) -> JudgeRequest:
            return JudgeRequest(f"{instruction}|{response}")

        def grade(self, reply: JudgeReply) -> float | None:
            return self.on_scale(float(reply.text)) if reply.text.isdigit() else None

    pairs = {"one": Pair("i", "a", "b", "in"), "two": Pair("i", "c", "d"), "none": Pair("i", "e", "f")}
    said = {"i\n\nin|a": "7", "i|c": "11", "i|e": "so"}
    with serving(said.__getitem__) as server:
        endpoint, replies = Endpoint(model="a-judge", url=server.url), Replies(tmp_path / "replies")
        ask_about(Grades(), pairs, endpoint, replies)
        found = {one.id: one.grade for one in grades(Grades(), pairs, endpoint.identity, replies)}
    assert found == {"one": 7.0, "two": None, "none": None}
    assert len(server.bodies) == 3


def test_a_grade_is_on_the_scale() -> None:
    judge = JUDGES.load("mt-bench").plugin
    assert isinstance(judge, GradeJudge)
    given = (0.99, 1.0, 5.5, 10.0, 10.01, float("nan"))
    assert [judge.on_scale(value) for value in given] == [None, 1.0, 5.5, 10.0, None, None]


def test_who_answers_on_this_machine_has_the_rules_in_its_name() -> None:
    assert local_identity("digest") == f"digest/{RULES}/2"
    assert Pair("q", "a", "b", "in").swapped() == Pair("q", "b", "a", "in")


def test_pairs_without_both_verdicts_and_equal_responses_lean_no_way() -> None:
    pairs = {
        "both": Pair("q", "longer", "short"),
        "no second": Pair("q", "longer", "short"),
        "no first": Pair("q", "longer", "short"),
        "equal": Pair("q", "same", "same"),
        "of one length": Pair("q", "one", "two"),
        "graded": Pair("q", "short", "longer"),
        "decided": Pair("q", "short", "longer"),
    }
    judged = [
        Judgement("both", 1.0, 1.0, 1.0),
        Judgement("no second", 1.0, None, None),
        Judgement("no first", None, 1.0, None),
        Judgement("equal", 0.5, 0.5, 0.5),
        Judgement("of one length", 1.0, 0.0, 0.5),
        Judgement("graded", 0.95, 0.1, 0.525),
        Judgement("decided", 0.95, 0.6, 0.775),
    ]
    found = leanings(judged, pairs)
    shares = {"both": 0.5, "of one length": 1.0, "graded": 0.925, "decided": 0.675}
    assert found.first == pytest.approx(shares)
    assert found.agreement == {"both": 1.0, "of one length": 0.0, "graded": 0.0, "decided": 1.0}
    assert found.longer == {"both": 1.0, "decided": 0.0}


def test_the_win_rate_is_the_mean_with_its_standard_error() -> None:
    values = [1.0, 0.0, 0.5, 1.0, 0.25]
    rate, error = win_rate(values)
    assert rate == pytest.approx(np.mean(values))
    assert error == pytest.approx(np.std(values, ddof=1) / np.sqrt(5))
