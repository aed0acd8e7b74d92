"""Judgements of responses: pairs in both orders, or grades; every reply kept, nothing asked twice.

A reply is known by what was asked: the digest of the model, the prompt and the options.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from emobench.kinds.instruct.judging.judge import (
    Answering,
    Asked,
    GradeJudge,
    Judge,
    JudgeReply,
    JudgeRequest,
    Pair,
    PairJudge,
    token_count,
)
from emobench.kinds.journal import Journal

TIE = 0.5


@dataclass(frozen=True)
class Judgement:
    """What a judge says of one pair."""

    id: str
    shown_first: float | None
    """How much ours is preferred where it is the first one: 1, 0.5 or 0; graded judges give any number between."""
    shown_second: float | None
    """The same where ours is the second one. None, as above, where the reply has no verdict or there is none."""
    preference: float | None
    """How much ours is preferred. None if a verdict of the two is missing."""
    problem: str = ""
    """Why a verdict is missing."""

    @property
    def outcome(self) -> int | None:
        """1 if ours is preferred in both orders, -1 if the other one is, else 0: a tie. None without a verdict."""
        if self.shown_first is None or self.shown_second is None:
            return None
        first, second = _winner(self.shown_first), _winner(self.shown_second)
        return first if first == second else 0


class Replies:
    """The replies to requests, in a file that survives a kill."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._known = dict(_entry(line) for line in self._journal.read())

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> JudgeReply | None:
        return self._known.get(key)

    def add(self, key: str, reply: JudgeReply) -> None:
        self._journal.append([f"{key} {json.dumps(asdict(reply))}"])
        self._known[key] = reply

    @property
    def models(self) -> list[str]:
        """The models that answered, as they name themselves."""
        return sorted({one.model for one in self._known.values()})

    def tokens(self) -> tuple[int, int]:
        """Return how many tokens were read and written for all replies."""
        found = self._known.values()
        return sum(one.prompt_tokens for one in found), sum(one.reply_tokens for one in found)


def _entry(line: str) -> tuple[str, JudgeReply]:
    key, _, rest = line.partition(" ")
    found = json.loads(rest)
    counts = {name: token_count(found[name]) for name in ("prompt_tokens", "reply_tokens")}
    return key, JudgeReply(**{**found, **counts, "top_logprobs": tuple(found["top_logprobs"])})


def request_key(identity: str, request: JudgeRequest) -> str:
    """Return the digest of all that decides a reply: who answers, and what is asked."""
    prompt = request.prompt if isinstance(request.prompt, str) else [dict(one) for one in request.prompt]
    text = json.dumps([identity, prompt, dict(request.options)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def requests_of(judge: Judge, pair: Pair) -> tuple[JudgeRequest, ...]:
    """Return what a judge is asked about a pair, whose `first` is ours: of two responses, each order.

    Of two equal responses nothing is asked. A judge that gives grades is asked about ours.
    """
    if isinstance(judge, GradeJudge):
        return (judge.request(pair.asked(), pair.first),)
    assert isinstance(judge, PairJudge)
    return (judge.request(pair), judge.request(pair.swapped())) if _differ(pair) else ()


def request_keys(judge: Judge, pairs: Mapping[str, Pair], identity: str) -> dict[str, tuple[str, ...]]:
    """Return the digests of what is asked about each pair; `identity` is of who answers."""
    return {key: tuple(request_key(identity, one) for one in requests_of(judge, pair)) for key, pair in pairs.items()}


def ask_about(
    judge: Judge,
    pairs: Mapping[str, Pair],
    answering: Answering,
    replies: Replies,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Asked:
    """Ask what is not answered yet.

    Raises what `answering` raises; replies until then are kept, and the next call asks for the others alone.
    """
    asked = (request for pair in pairs.values() for request in requests_of(judge, pair))
    requests = {request_key(answering.identity, request): request for request in asked}
    missing = {digest: request for digest, request in requests.items() if digest not in replies}
    return answering.ask(missing, replies.add, progress) if missing else Asked()


def pair_judgements(
    judge: PairJudge,
    pairs: Mapping[str, Pair],
    identity: str,
    replies: Replies,
    problems: Mapping[str, str] = MappingProxyType({}),
) -> list[Judgement]:
    """Read the replies about pairs, whose `first` is ours and `second` the other one.

    Two equal responses are a tie. Two orders that disagree are a tie; those of a graded judge are averaged. `problems`
    says why a request, by its digest, has no reply.
    """
    found = []
    for key, digests in request_keys(judge, pairs, identity).items():
        if not digests:
            found.append(Judgement(key, TIE, TIE, TIE))
            continue
        sides = [_preference(judge, replies.get(digest)) for digest in digests]
        first, second = sides[0], None if sides[1] is None else 1 - sides[1]
        preference = _both(first, second, judge.graded)
        found.append(Judgement(key, first, second, preference, _problem(preference, digests, problems)))
    return found


@dataclass(frozen=True)
class Graded:
    """The grade that a judge gives a response; None where the reply has none or there is none."""

    id: str
    grade: float | None
    problem: str = ""


def grades(
    judge: GradeJudge,
    pairs: Mapping[str, Pair],
    identity: str,
    replies: Replies,
    problems: Mapping[str, str] = MappingProxyType({}),
) -> list[Graded]:
    """Read the replies about the responses that are `first` in the pairs."""
    found = []
    for key, digests in request_keys(judge, pairs, identity).items():
        reply = replies.get(digests[0])
        grade = None if reply is None else judge.grade(reply)
        found.append(Graded(key, grade, _problem(grade, digests, problems)))
    return found


def _problem(found: float | None, digests: Sequence[str], problems: Mapping[str, str]) -> str:
    if found is not None:
        return ""
    return next((problems[digest] for digest in digests if digest in problems), "the reply has no verdict")


def _differ(pair: Pair) -> bool:
    return pair.first != pair.second


def _preference(judge: PairJudge, reply: JudgeReply | None) -> float | None:
    return None if reply is None else judge.preference(reply)


def _both(first: float | None, second: float | None, graded: bool) -> float | None:
    if first is None or second is None:
        return None
    if graded:
        return (first + second) / 2
    return first if first == second else TIE


def win_rate(preferences: Sequence[float]) -> tuple[float, float]:
    """Return the mean preference, a fraction, and its standard error over pairs, as AlpacaEval defines them."""
    return statistics.fmean(preferences), statistics.stdev(preferences) / math.sqrt(len(preferences))


@dataclass(frozen=True)
class Leanings:
    """What a judge prefers besides quality, by the ids of pairs with both verdicts; none of equal responses."""

    first: Mapping[str, float]
    """How much the response that is shown first is preferred: 0.5 on average without a bias of position."""
    agreement: Mapping[str, float]
    """Whether both orders give the same verdict: 1 or 0."""
    longer: Mapping[str, float]
    """Of pairs that both orders decide alike and that differ in length, whether the longer response wins: 1 or 0."""


def leanings(judgements: Sequence[Judgement], pairs: Mapping[str, Pair]) -> Leanings:
    """Return which way a judge leans."""
    first: dict[str, float] = {}
    agreement: dict[str, float] = {}
    longer: dict[str, float] = {}
    for one in judgements:
        a, b, pair = one.shown_first, one.shown_second, pairs[one.id]
        if a is None or b is None or one.preference is None or not _differ(pair):
            continue
        first[one.id] = (a + 1 - b) / 2
        agreement[one.id] = float(_winner(a) == _winner(b))
        if one.outcome and len(pair.first) != len(pair.second):
            longer[one.id] = float((one.outcome > 0) == (len(pair.first) > len(pair.second)))
    return Leanings(first, agreement, longer)


def _winner(preference: float) -> int:
    return (preference > TIE) - (preference < TIE)
