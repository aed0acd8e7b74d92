"""Verdicts on pairs in both orders, and the numbers that follow from them, each against a calculation by hand."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from endpoints import Scripted, serving

from emobench.core.errors import MetricError, RunError
from emobench.core.settings import content_hash
from emobench.data.chat_templates import RULES
from emobench.kinds.cost import Requests
from emobench.kinds.instruct.judged import (
    GRADE,
    WIN_RATE,
    Answered,
    Graded,
    Judgement,
    check_verdicts,
    expected_requests,
    grades,
    kept_replies,
    pair_judgements,
    pair_means,
    replies_facts,
    request_key,
    tokens_of,
    unread_pairs,
    verdict_scores,
    win_rate,
)
from emobench.kinds.instruct.judging.endpoint import Endpoint
from emobench.kinds.instruct.judging.judge import JUDGES, GradeJudge, Judge, JudgeReply, JudgeRequest, Pair, PairJudge
from emobench.kinds.instruct.judging.local import LocalModel
from emobench.kinds.instruct.rules import JudgeRule
from emobench.tasks.scores import SECONDARY

NO_VERDICT = "the reply has no verdict"


class Words(PairJudge):
    """Its prompt is "first|second", and its reply a number."""

    name, model = "words", "a-judge"
    most = 10

    def request(self, pair: Pair) -> JudgeRequest:
        return JudgeRequest(f"{pair.first}|{pair.second}", {"max_tokens": self.most})

    def preference(self, reply: JudgeReply) -> float | None:
        try:
            return float(reply.text)
        except ValueError:
            return None


class Shares(Words):
    graded = True


class Grades(GradeJudge):
    name, model = "grades", "a-judge"

    def request(self, instruction: str, response: str) -> JudgeRequest:
        return JudgeRequest(f"{instruction}|{response}")

    def grade(self, reply: JudgeReply) -> float | None:
        return self.on_scale(float(reply.text)) if reply.text.isdigit() else None


def asked(
    server: Scripted,
    pairs: Mapping[str, Pair],
    folder: Path,
    judge: Judge | None = None,
    model: str = "a-judge",
    **given: Any,
) -> Answered:
    """Return the kept replies; the stage is a folder that stays."""
    endpoint = Endpoint(model, JudgeRule(url=server.url, **{"retries": 1, "concurrency": 2, **given}))

    def keep(name: str, facts: Any, make: Any) -> Path:
        folder.mkdir(exist_ok=True)
        make(folder)
        return folder

    return kept_replies(judge or Words(), pairs, endpoint, keep, lambda: nullcontext(lambda done, total: None))


def judged(*given: Any, **more: Any) -> dict[str, Judgement]:
    judge = given[3] if len(given) > 3 else Words()
    return {one.id: one for one in pair_judgements(judge, asked(*given, **more))}


def longer(prompt: str) -> str:
    first, second = prompt.split("|")
    return "1" if len(first) > len(second) else "0"


def test_orders_that_agree_decide_and_others_are_a_tie_or_averaged(tmp_path: Path) -> None:
    replies = {"good|bad": "1", "bad|good": "0", "a|b": "1", "b|a": "1", "win|tie": "1", "tie|win": "0.5"}
    pairs = {"won": Pair("i", "good", "bad"), "lost": Pair("i", "bad", "good")}
    pairs |= {"first": Pair("i", "a", "b"), "half": Pair("i", "win", "tie"), "same": Pair("i", "x", "x")}
    with serving(replies.__getitem__) as server:
        verdicts = judged(server, pairs, tmp_path / "pairs")
        prompts = Counter(body["prompt"] for body in server.bodies)
    preferences = {key: one.preference for key, one in verdicts.items()}
    assert preferences == {"won": 1.0, "lost": 0.0, "first": 0.5, "half": 0.5, "same": 0.5}
    assert verdicts["first"] == Judgement("first", 1.0, 0.0, 0.5)
    assert prompts == dict.fromkeys(replies, 1)  # equal responses are not asked about, and equal questions once
    with serving({"a|b": "0.9", "b|a": "0.3"}.__getitem__) as server:
        share = judged(server, {"one": Pair("i", "a", "b")}, tmp_path / "shares", Shares())["one"].preference
    assert share == pytest.approx((0.9 + 0.7) / 2)


def test_a_reply_without_a_verdict_is_missing_with_its_reason(tmp_path: Path) -> None:
    pairs = {str(i): Pair("i", f"a{i}", f"b{i}") for i in range(40)}
    with serving(
        lambda prompt: "I cannot say." if prompt == "a0|b0" else "1",
        lambda prompt, attempt: "too_long" if prompt == "a1|b1" else None,
    ) as server:
        verdicts = judged(server, pairs, tmp_path / "replies")
    assert verdicts["0"] == Judgement("0", None, 0.0, None, NO_VERDICT)
    assert verdicts["2"] == Judgement("2", 1.0, 0.0, 0.5)
    assert verdicts["1"].preference is None
    assert "maximum context length" in verdicts["1"].problem


def test_what_was_judged_before_a_stop_or_a_torn_line_is_not_judged_again(tmp_path: Path) -> None:
    pairs = {str(i): Pair("i", f"{i}" * 3, f"{i}") for i in range(9)}
    path = tmp_path / "replies"
    with serving(longer, lambda prompt, attempt: "server_error" if prompt[0] in "5678" else None) as server:
        with pytest.raises(RunError):
            judged(server, pairs, path, concurrency=1)
        first = {body["prompt"] for body in server.bodies}
        server.faults = lambda prompt, attempt: None
        server.bodies.clear()
        verdicts = judged(server, pairs, path)
        again = {body["prompt"] for body in server.bodies}
    assert {prompt for prompt in first if prompt[0] in "01234"}.isdisjoint(again)
    assert {one.preference for one in verdicts.values()} == {1.0}
    with serving(longer) as server:
        assert judged(server, pairs, path) == verdicts
        assert not server.bodies
        (path / "replies.jsonl").write_bytes((path / "replies.jsonl").read_bytes()[:-20])
        assert judged(server, pairs, path) == verdicts
        assert len(server.bodies) == 1


def test_another_model_or_other_options_are_asked_anew_and_a_key_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Longer(Words):
        most = 2

    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    path, pairs = tmp_path / "replies", {"one": Pair("i", "aa", "b")}
    with serving(longer) as server:
        judged(server, pairs, path)
        judged(server, pairs, path, Longer())
        judged(server, pairs, path, model="another")
    assert len(server.bodies) == 6
    assert b"secret" not in (path / "replies.jsonl").read_bytes()


def test_a_request_is_known_by_who_answers_and_by_all_that_is_asked() -> None:
    options = {"max_tokens": 1, "temperature": 0}
    request = JudgeRequest("é", options)
    content = json.dumps(["m", "é", options], sort_keys=True, ensure_ascii=False)
    key = request_key("m", request)
    assert key == hashlib.sha256(content.encode()).hexdigest()[:32]
    assert key == request_key("m", JudgeRequest("é", dict(reversed(options.items()))))
    chat = JudgeRequest(({"role": "user", "content": "é"},), options)
    others = [("n", request), ("m", JudgeRequest("e", options)), ("m", JudgeRequest("é", {"max_tokens": 1}))]
    assert len({key, *(request_key(*one) for one in [*others, ("m", chat)])}) == 5
    assert request_key("m", JudgeRequest("\ud800")) != request_key("m", JudgeRequest("?"))
    handle: Any = SimpleNamespace(identity={"sha256": "0"})
    assert LocalModel(handle, "m").identity == f"{content_hash({'sha256': '0'})}/{RULES}/2"


def test_a_response_is_graded_once_with_its_input(tmp_path: Path) -> None:
    pairs = {"one": Pair("i", "a", "b", "in"), "two": Pair("i", "c", "d"), "none": Pair("i", "e", "f")}
    with serving({"i\n\nin|a": "7", "i|c": "11", "i|e": "so"}.__getitem__) as server:
        graded = grades(Grades(), asked(server, pairs, tmp_path / "replies", Grades()))
    assert {one.id: one.grade for one in graded} == {"one": 7.0, "two": None, "none": None}
    assert len(server.bodies) == 3
    given = (0.99, 1.0, 5.5, 10.0, 10.01, float("nan"))
    assert [Grades().on_scale(value) for value in given] == [None, 1.0, 5.5, 10.0, None, None]


def test_a_judges_biases_are_of_pairs_with_both_verdicts_and_unequal_responses() -> None:
    pairs = {
        "both": Pair("q", "longer", "short"),
        "no second": Pair("q", "longer", "short"),
        "no first": Pair("q", "longer", "short"),
        "equal": Pair("q", "same", "same"),
        "of one length": Pair("q", "one", "two"),
        "graded": Pair("q", "short", "longer"),
        "decided": Pair("q", "short", "longer"),
    }
    means = pair_means(
        [
            Judgement("both", 1.0, 1.0, 1.0),
            Judgement("no second", 1.0, None, None),
            Judgement("no first", None, 1.0, None),
            Judgement("equal", 0.5, 0.5, 0.5),
            Judgement("of one length", 1.0, 0.0, 0.5),
            Judgement("graded", 0.95, 0.1, 0.525),
            Judgement("decided", 0.95, 0.6, 0.775),
        ],
        pairs,
    )
    assert means == {
        "win_rate": {"both": 1.0, "equal": 0.5, "of one length": 0.5, "graded": 0.525, "decided": 0.775},
        "position_bias": pytest.approx({"both": 0.5, "of one length": 1.0, "graded": 0.925, "decided": 0.675}),
        "order_agreement": {"both": 1.0, "of one length": 0.0, "graded": 0.0, "decided": 1.0},
        "length_bias": {"both": 1.0, "decided": 0.0},
    }


def test_the_win_rate_is_the_mean_with_its_standard_error() -> None:
    values = [1.0, 0.0, 0.5, 1.0, 0.25]
    assert win_rate(values) == pytest.approx((np.mean(values), np.std(values, ddof=1) / np.sqrt(5)))


def test_failures_are_a_share_of_the_requests() -> None:
    verdicts = [
        Judgement("good", 0.0, 0.0, 0.0),
        Judgement("one", None, 1.0, None, "first reason"),
        Judgement("both", None, None, None, "second reason"),
        Judgement("equal", 0.5, 0.5, 0.5),
    ]
    counts = {"one": 2, "both": 2, "good": 2, "equal": 0}
    scored = verdict_scores(verdicts, counts, {WIN_RATE: {"good": 0.0, "equal": 0.5}}, "A judge")
    failures = scored.scores["parse_failures"]
    assert failures.value == pytest.approx(3 / 6)
    assert failures.examples == {"one": (0.5, 2.0), "both": (1.0, 2.0), "good": (0.0, 2.0)}
    assert "3 of 6 requests (50%; at most 5% may be without): first reason" in scored.missing[WIN_RATE]
    assert (failures.flags, failures.higher_is_better) == ((SECONDARY,), None)
    same = verdict_scores([verdicts[-1]], {"equal": 0}, {WIN_RATE: {"equal": 0.5}}, "A judge")
    assert (same.scores.keys(), same.missing.keys()) == ({WIN_RATE}, {"parse_failures"})
    assert (same.scores[WIN_RATE].value, same.scores[WIN_RATE].flags) == (0.5, ())


def test_grades_of_twenty_responses_may_lack_one() -> None:
    given = [Graded(str(i), None if i == 7 else float(i % 5)) for i in range(20)]
    values = {one.id: one.grade for one in given if one.grade is not None}
    counts = dict.fromkeys(map(str, range(20)), 1)
    scored = verdict_scores(given, counts, {GRADE: values}, "A judge")
    score = scored.scores[GRADE]
    assert score.value == pytest.approx(sum(i % 5 for i in range(20) if i != 7) / 19)
    assert (score.n, score.unit, score.higher_is_better) == (19, "grade", True)
    assert scored.scores["parse_failures"].value == pytest.approx(1 / 20)
    with pytest.raises(MetricError, match="2 of 20 requests"):
        check_verdicts([*given[:-1], Graded("19", None, NO_VERDICT)], counts, "A judge")


@pytest.mark.parametrize("fault", ["too_long", "server_error"])
@pytest.mark.parametrize("lost", [2, 3])
def test_two_of_forty_requests_may_have_no_reply(lost: int, fault: str, tmp_path: Path) -> None:
    pairs = {str(i): Pair("q", f"a{i}", f"b{i}") for i in range(20)}
    without = [f"a{i}|b{i}" for i in range(lost)]
    with serving(lambda prompt: "1", lambda prompt, attempt: fault if prompt in without else None) as server:
        if lost == 3:
            with pytest.raises(RunError, match=r"3 of 40 requests to the judge words"):
                asked(server, pairs, tmp_path, retries=0)
        else:
            answered = asked(server, pairs, tmp_path, retries=0)
            assert (len(answered.replies.known), len(answered.problems)) == (38, 2)


def test_requests_have_a_key_and_tokens_before_they_are_sent() -> None:
    digests = [f"{i:02d}" for i in range(20)]
    assert replies_facts(iter([*digests[::-1], *digests])) == {"requests": content_hash(digests)}
    text, messages = "é" * 10, ({"role": "system", "content": "abcd"}, {"role": "user", "content": "efgh"})
    requests = [JudgeRequest(text), JudgeRequest(messages, {"max_tokens": 7})]
    assert tokens_of("m", requests, 100) == Requests("m", 2, 20 // 3 + 8 // 3 + 200, 512 + 7)
    pairs = [Pair("q", "aaa", "bb"), Pair("q", "same", "same")]
    expected = Requests("a-judge", 2, 2 * (6 // 3 + 5), 20)
    assert expected_requests(JudgeRule(name="x"), Words(), pairs, unknown=5) == expected
    assert expected_requests(JudgeRule(name="x", model="own"), Words(), pairs, unknown=0).model == "own"


def test_instructions_that_are_not_here_count_as_120_tokens() -> None:
    assert [len(unread_pairs("alpaca_eval", limit)) for limit in (None, 7, 900)] == [805, 7, 805]
    assert unread_pairs("own", 7) == unread_pairs("own", None) == []
    judge: Any = JUDGES.load("pandalm").plugin
    (pair,) = unread_pairs("alpaca_eval", 1)
    bare = len(judge.request(Pair("", "?", "!")).prompt)
    requests = expected_requests(JudgeRule(name="pandalm"), judge, [pair], unknown=2)
    assert (requests.count, requests.read, requests.written) == (2, 2 * ((bare + 360) // 3 + 2), 1024)
