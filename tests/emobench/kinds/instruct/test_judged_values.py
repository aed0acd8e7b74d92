"""Numbers that follow from verdicts and requests, each against a calculation by hand."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "judging"))
from endpoints import serving

from emobench.core.errors import MetricError, RunError
from emobench.core.settings import content_hash
from emobench.kinds.cost import Requests
from emobench.kinds.instruct.judged import (
    Graded,
    Judgement,
    check_verdicts,
    expected_requests,
    grade_scores,
    kept_replies,
    pair_scores,
    read_preferences,
    replies_facts,
    tokens_of,
    unread_pairs,
)
from emobench.kinds.instruct.judging.endpoint import Endpoint
from emobench.kinds.instruct.judging.judge import JUDGES, JudgeReply, JudgeRequest, Pair, PairJudge
from emobench.kinds.instruct.rules import JudgeRule
from emobench.tasks.scores import SECONDARY

NO_VERDICT = "the reply has no verdict"


class Words(PairJudge):
    """Its prompt is "first|second", and its reply a number."""

    name, model = "words", "a-judge"

    def request(self, pair: Pair) -> JudgeRequest:
        return JudgeRequest(f"{pair.first}|{pair.second}", {"max_tokens": 10})

    def preference(self, reply: JudgeReply) -> float | None:
        return float(reply.text)


def test_failures_are_a_share_of_the_requests() -> None:
    pairs = {key: Pair("q", "ours", "ours" if key == "equal" else "theirs") for key in ("one", "both", "good", "equal")}
    judged = [
        Judgement("good", 0.0, 0.0, 0.0),
        Judgement("one", None, 1.0, None, "first reason"),
        Judgement("both", None, None, None, "second reason"),
        Judgement("equal", 0.5, 0.5, 0.5),
    ]
    counts = {"one": 2, "both": 2, "good": 2, "equal": 0}
    found = pair_scores(judged, counts, pairs, "A judge")
    failures = found.scores["parse_failures"]
    assert failures.value == pytest.approx(3 / 6)
    assert failures.examples == {"one": (0.5, 2.0), "both": (1.0, 2.0), "good": (0.0, 2.0)}
    assert "gave no verdict to 3 of 6 requests (50%; at most 5% may be without): first reason" in str(
        found.missing["win_rate"]
    )
    assert (failures.flags, failures.higher_is_better) == ((SECONDARY,), None)
    same = pair_scores([judged[-1]], {"equal": 0}, pairs, "A judge")
    assert set(same.scores) == {"win_rate"}
    assert (same.scores["win_rate"].value, same.scores["win_rate"].flags) == (0.5, ())
    assert "asked nothing" in str(same.missing["parse_failures"])


def test_grades_of_twenty_responses_may_lack_one() -> None:
    judged = [Graded(str(i), None if i == 7 else float(i % 5)) for i in range(20)]
    found = grade_scores(judged, dict.fromkeys(map(str, range(20)), 1), "A judge")
    given = [i % 5 for i in range(20) if i != 7]
    assert found.scores["grade"].value == pytest.approx(sum(given) / 19)
    score = found.scores["grade"]
    assert (score.n, score.unit, score.higher_is_better) == (19, "grade", True)
    assert found.scores["parse_failures"].value == pytest.approx(1 / 20)
    with pytest.raises(MetricError, match="2 of 20 requests"):
        check_verdicts([*judged[:-1], Graded("19", None, NO_VERDICT)], dict.fromkeys(map(str, range(20)), 1), "A judge")


def test_a_file_of_judgements_gives_the_preferences_that_are_there(tmp_path: Path) -> None:
    rows = [{"id": "a", "preference": 0.0}, {"id": "b", "preference": None}, {"id": "c", "grade": 3.0}]
    (tmp_path / "judgements.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert read_preferences(tmp_path / "judgements.jsonl") == {"a": 0.0}


@pytest.mark.parametrize(
    ("lost", "fault"), [(2, "too_long"), (3, "too_long"), (2, "server_error"), (3, "server_error")]
)
def test_two_of_forty_requests_may_have_no_reply(
    lost: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {str(i): Pair("q", f"a{i}", f"b{i}") for i in range(20)}
    without = [f"a{i}|b{i}" for i in range(lost)]

    def keep(name: str, facts: Any, make: Any) -> Path:
        make(tmp_path)
        return tmp_path

    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    with serving(lambda prompt: "1", lambda prompt, attempt: fault if prompt in without else None) as server:
        endpoint = Endpoint(model="a-judge", url=server.url, retries=0)
        given = (Words(), pairs, endpoint, keep, lambda: nullcontext(lambda done, total: None))
        if lost == 3:
            with pytest.raises(RunError, match=r"3 of 40 requests to the judge words"):
                kept_replies(*given)
            return
        replies, problems = kept_replies(*given)
    assert (len(replies), len(problems)) == (38, 2)


def test_a_stage_of_replies_is_known_by_its_requests_in_any_order() -> None:
    digests = [f"{i:02d}" for i in range(20)]
    assert replies_facts(iter([*digests[::-1], *digests])) == {"requests": content_hash(digests)}


def test_the_tokens_of_requests_are_a_third_of_their_bytes() -> None:
    text, messages = "é" * 10, ({"role": "system", "content": "abcd"}, {"role": "user", "content": "efgh"})
    requests = [JudgeRequest(text), JudgeRequest(messages, {"max_tokens": 7})]
    assert tokens_of("m", requests, 100) == Requests("m", 2, 20 // 3 + 8 // 3 + 200, 512 + 7)
    pairs = [Pair("q", "aaa", "bb"), Pair("q", "same", "same")]
    judge = Words()
    assert expected_requests(JudgeRule(name="x"), judge, pairs, unknown=5) == Requests(
        "a-judge", 2, 2 * (6 // 3 + 5), 20
    )
    assert expected_requests(JudgeRule(name="x", model="own"), judge, pairs, unknown=0).model == "own"


def test_instructions_that_are_not_here_count_as_120_tokens() -> None:
    assert [len(unread_pairs("alpaca_eval", limit)) for limit in (None, 7, 900)] == [805, 7, 805]
    assert unread_pairs("own", 7) == unread_pairs("own", None) == []
    judge = JUDGES.load("pandalm").plugin
    assert isinstance(judge, PairJudge)
    (pair,) = unread_pairs("alpaca_eval", 1)
    bare = len(judge.request(Pair("", "?", "!")).prompt)
    found = expected_requests(JudgeRule(name="pandalm"), judge, [pair], unknown=2)
    assert (found.count, found.read, found.written) == (2, 2 * ((bare + 360) // 3 + 2), 1024)
