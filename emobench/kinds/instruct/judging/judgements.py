"""Judgements of pairs of responses: each pair in both orders, every reply kept, nothing asked twice.

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

from emobench.kinds.instruct.judging.judge import Answering, Asked, JudgeReply, JudgeRequest, Pair, PairJudge
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

    def tokens(self) -> tuple[int, int]:
        """Return how many tokens were read and written for all replies."""
        found = self._known.values()
        return sum(one.prompt_tokens for one in found), sum(one.reply_tokens for one in found)


def _entry(line: str) -> tuple[str, JudgeReply]:
    key, _, rest = line.partition(" ")
    found = json.loads(rest)
    return key, JudgeReply(**{**found, "top_logprobs": tuple(found["top_logprobs"])})


def request_key(identity: str, request: JudgeRequest) -> str:
    """Return the digest of all that decides a reply: who answers, and what is asked."""
    prompt = request.prompt if isinstance(request.prompt, str) else [dict(one) for one in request.prompt]
    text = json.dumps([identity, prompt, dict(request.options)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def judge_pairs(
    judge: PairJudge,
    pairs: Mapping[str, Pair],
    answering: Answering,
    replies: Replies,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[Judgement], Asked]:
    """Judge pairs, whose `first` is ours and `second` the other one, in both orders.

    Two equal responses are a tie, and nobody is asked. Two orders that disagree are a tie; those of a graded judge are
    averaged. Raises what `answering` raises; replies until then are kept, and the next call asks for the others alone.
    """
    requests = {key: (judge.request(one), judge.request(one.swapped())) for key, one in pairs.items() if _differ(one)}
    keys = {key: tuple(request_key(answering.identity, one) for one in both) for key, both in requests.items()}
    missing = {
        digest: request
        for key, both in requests.items()
        for digest, request in zip(keys[key], both, strict=True)
        if digest not in replies
    }
    asked = answering.ask(missing, replies.add, progress) if missing else Asked()
    problems = {**asked.failed, **asked.refused}
    found = []
    for key in pairs:
        if key not in keys:
            found.append(Judgement(key, TIE, TIE, TIE))
            continue
        sides = [_preference(judge, replies.get(digest)) for digest in keys[key]]
        first, second = sides[0], None if sides[1] is None else 1 - sides[1]
        why = next((problems[digest] for digest in keys[key] if digest in problems), "")
        preference = _both(first, second, judge.graded)
        if preference is None and not why:
            why = "the reply has no verdict"
        found.append(Judgement(key, first, second, preference, why))
    return found, asked


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
class Bias:
    """What a judge prefers besides quality, over the pairs with both verdicts."""

    first: float
    """How much the response that is shown first is preferred: 0.5 without a bias of position."""
    agreement: float
    """The share of pairs in which both orders give the same verdict."""
    longer: float | None
    """The share of decided pairs in which the longer response wins; None if no pair is decided."""


def bias(judgements: Sequence[Judgement], pairs: Mapping[str, Pair]) -> Bias | None:
    """Return the biases of a judge; None if no pair has both verdicts and differs."""
    whole = [one for one in judgements if one.preference is not None and _differ(pairs[one.id])]
    if not whole:
        return None
    sides = [(one.shown_first, one.shown_second) for one in whole]
    both = [(a, b) for a, b in sides if a is not None and b is not None]
    first = sum(a + 1 - b for a, b in both) / (2 * len(both))
    agreement = sum(_winner(a) == _winner(b) for a, b in both) / len(both)
    decided = [(one, pairs[one.id]) for one in whole if _winner(one.preference or 0) != 0]
    longer = [
        (_winner(one.preference or 0) > 0) == (len(pair.first) > len(pair.second))
        for one, pair in decided
        if len(pair.first) != len(pair.second)
    ]
    return Bias(first, agreement, sum(longer) / len(longer) if longer else None)


def _winner(preference: float) -> int:
    return (preference > TIE) - (preference < TIE)
