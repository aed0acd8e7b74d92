"""Judgements of responses, and the scores that follow from them.

Pairs are judged in both orders, or each response gets a grade. Every reply is kept in a stage of its own, under the
digest of the model, the prompt and the options, so that nothing is asked twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from emobench.core.errors import MetricError, RunError
from emobench.core.extras import require
from emobench.core.settings import content_hash
from emobench.kinds.cost import Requests, least
from emobench.kinds.instruct.instructions import SOURCES
from emobench.kinds.instruct.judging.judge import (
    JUDGES,
    Answering,
    GradeJudge,
    Judge,
    JudgeReply,
    JudgeRequest,
    Pair,
    PairJudge,
)
from emobench.kinds.instruct.responses import Response
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule
from emobench.kinds.interface import Keep, Progress, Scored, Scores, Subject
from emobench.kinds.journal import Journal
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.models.model import AuxiliaryModel, Model
from emobench.tasks.scores import MOST_MISSING, Measure

TIE = 0.5
REPLIES, PROBLEMS = "replies.jsonl", "problems.json"
JUDGEMENTS, JUDGE = "judgements.jsonl", "judge.json"
"""Next to the scores: each verdict, and who gave them with how many tokens."""
WIN_RATE, GRADE, FAILURES = "win_rate", "grade", "parse_failures"
MEASURES = {
    WIN_RATE: Measure(
        True,
        "fraction",
        title="Win rate",
        definition="The share of instructions on which a judge prefers the model's response to the reference's, in "
        "both orders; a tie counts half.",
        source="Li et al., 2023",
    ),
    GRADE: Measure(
        True,
        "grade",
        title="Grade",
        definition="The mean grade that a judge gives the model's responses.",
        source="Zheng et al., NeurIPS 2023",
    ),
    "position_bias": Measure(
        None,
        "fraction",
        secondary=True,
        title="First place wins",
        definition="How often a judge prefers the response that it reads first: 50 % without a bias of position.",
    ),
    "order_agreement": Measure(
        None,
        "fraction",
        secondary=True,
        title="Agreement of orders",
        definition="The share of pairs of responses on which a judge gives the same verdict in both orders.",
    ),
    "length_bias": Measure(
        None,
        "fraction",
        secondary=True,
        title="Longer response wins",
        definition="The share of decided pairs of responses in which a judge prefers the longer one.",
    ),
    FAILURES: Measure(
        None,
        "fraction",
        secondary=True,
        title="Replies without verdict",
        definition="The share of requests to a judge whose reply has no verdict, or that were refused.",
    ),
}
PUBLISHED = {
    "alpaca_eval_win_rate": Measure(
        True,
        "fraction",
        title="AlpacaEval win rate",
        definition="The share of instructions on which a judge prefers the model's answer to the reference's.",
        source="Li et al., 2023",
    ),
    "autoj_win_rate": Measure(
        True,
        "fraction",
        title="Auto-J win rate",
        definition="The share of instructions on which the judge Auto-J prefers the model's answer to a rival's.",
        source="Li et al., ICLR 2024",
    ),
}
"""The metrics of papers' results."""
REPLY_TOKENS = 512
"""Of a reply, for the estimate, where a judge names no `max_tokens`."""
BYTES_PER_TOKEN = 3
"""Of a judge's prompt: English has about 4, and markup less."""
PROMPT_TOKENS = 120
"""Of an instruction in the Alpaca prompt, for the estimate, where it is not here."""


@dataclass(frozen=True)
class Judgement:
    """The verdicts of a judge on one pair."""

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
    def unread(self) -> int:
        """The number of requests without a verdict."""
        return (self.shown_first, self.shown_second).count(None)

    @property
    def outcome(self) -> int | None:
        """1 if ours is preferred in both orders, -1 if the other one is, else 0: a tie. None without a verdict."""
        if self.shown_first is None or self.shown_second is None:
            return None
        winner = _winner(self.shown_first)
        return winner * (winner == _winner(self.shown_second))


@dataclass(frozen=True)
class Graded:
    """The grade that a judge gives a response; None where the reply has none or there is none."""

    id: str
    grade: float | None
    problem: str = ""

    @property
    def unread(self) -> int:
        """The number of requests without a grade."""
        return int(self.grade is None)


Verdicts = Sequence[Judgement] | Sequence[Graded]


class Replies:
    """The replies to requests by their digests, in a file that survives a kill."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self.known: dict[str, JudgeReply] = {}
        for line in self._journal.read():
            key, _, fields = line.partition(" ")
            self.known[key] = JudgeReply.from_json(json.loads(fields))

    def add(self, key: str, reply: JudgeReply) -> None:
        self._journal.append([f"{key} {json.dumps(asdict(reply))}"])
        self.known[key] = reply

    def counts(self) -> dict[str, int]:
        """Return the number of replies, and of the tokens that were read and written for them."""
        counts = {"replies": len(self.known), "tokens_read": 0, "tokens_written": 0}
        for reply in self.known.values():
            counts["tokens_read"] += reply.prompt_tokens
            counts["tokens_written"] += reply.reply_tokens
        return counts


@dataclass(frozen=True)
class Answered:
    """The replies to all that a judge is asked about pairs."""

    digests: Mapping[str, Sequence[str]]
    """Of the requests about each pair."""
    replies: Replies
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why requests have no reply, by digest."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of requests about each pair."""
        return {key: len(digests) for key, digests in self.digests.items()}

    def read(self, key: str, parse: Callable[[JudgeReply], float | None]) -> tuple[list[float | None], str]:
        """Return the verdicts of the replies about a pair, and why one is missing."""
        digests = self.digests[key]
        replies = map(self.replies.known.get, digests)
        verdicts = [reply and parse(reply) for reply in replies]
        reasons = [self.problems[digest] for digest in digests if digest in self.problems]
        return verdicts, (reasons or ["the reply has no verdict"])[0] if None in verdicts else ""


def judge_scores(subject: Subject, rules: InstructProtocol, task: str, responses: Sequence[Response]) -> Scored:
    """Return the metrics of the judge that the rules name. Raises the errors of `kept_replies`."""
    judge = JUDGES.load(rules.judge.name).plugin
    answering = answering_of(rules.judge, judge, subject.other)
    pairs = {one.id: Pair(one.instruction, one.text, one.reference, one.input) for one in responses}
    title = f"judge {task} with {judge.name}"
    answered = kept_replies(judge, pairs, answering, subject.keep, lambda: subject.work(title, "requests"))
    judged: Verdicts
    if isinstance(judge, PairJudge):
        judged = pair_judgements(judge, answered)
        means = pair_means(judged, pairs)
    else:
        assert isinstance(judge, GradeJudge)
        judged = grades(judge, answered)
        means = {GRADE: {one.id: one.grade for one in judged if one.grade is not None}}
    scored = verdict_scores(judged, answered.counts, means, who_judges(rules.judge, judge))
    scored.files[JUDGEMENTS] = "".join(f"{json.dumps(asdict(one), ensure_ascii=False)}\n" for one in judged)
    models = sorted({reply.model for reply in answered.replies.known.values()})
    facts = {"judge": rules.judge.name, "models": models, **answered.replies.counts()}
    scored.files[JUDGE] = json.dumps(facts, indent=1) + "\n"
    return scored


def who_judges(rule: JudgeRule, judge: Judge) -> str:
    """Return the judge and its model, for the beginning of a sentence."""
    return f"{judge.name}, answered by {rule.model_of(judge)},"


def answering_of(rule: JudgeRule, judge: Judge, load: Callable[[AuxiliaryModel], Model]) -> Answering:
    """Return who answers for a judge; no weights are read before the first request."""
    if rule.backend == "endpoint":
        require("openai")
        return rule.endpoint(judge)
    from emobench.kinds.instruct.judging.local import LocalModel

    return LocalModel(load(rule.local_model(judge)), rule.model_of(judge))


def check_judge(rule: JudgeRule, judge: Judge, model: Model) -> None:
    """Raise the UserErrors of asking that are known before any request is sent."""
    answering = answering_of(rule, judge, model.other)
    for request in requests_of(judge, Pair("Name a prime number.", "Seven.", "Nine.")):
        answering.check(request)


def requests_of(judge: Judge, pair: Pair) -> tuple[JudgeRequest, ...]:
    """Return the requests to a judge about a pair, whose `first` is ours: of two responses, each order.

    Of two equal responses nothing is asked. A judge that gives grades is asked about ours.
    """
    if isinstance(judge, GradeJudge):
        return (judge.request(pair.asked(), pair.first),)
    assert isinstance(judge, PairJudge)
    if pair.first == pair.second:
        return ()
    return judge.request(pair), judge.request(pair.swapped())


def request_key(identity: str, request: JudgeRequest) -> str:
    """Return the digest of the model that answers, the prompt and the options."""
    prompt: Any = request.prompt
    if not isinstance(prompt, str):
        prompt = list(map(dict, prompt))
    text = json.dumps([identity, prompt, dict(request.options)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def keyed_requests(
    judge: Judge, pairs: Mapping[str, Pair], identity: str
) -> tuple[dict[str, list[str]], dict[str, JudgeRequest]]:
    """Return the digests of the requests about each pair, and each request by its digest.

    `identity` is that of the model that answers.
    """
    digests = {}
    requests = {}
    for key, pair in pairs.items():
        digests[key] = []
        for request in requests_of(judge, pair):
            digest = request_key(identity, request)
            digests[key].append(digest)
            requests[digest] = request
    return digests, requests


def replies_facts(digests: Iterable[str]) -> dict[str, Any]:
    """Return the facts that identify the stage of the replies to requests."""
    return {"requests": content_hash(sorted(set(digests)))}


def kept_replies(
    judge: Judge,
    pairs: Mapping[str, Pair],
    answering: Answering,
    keep: Keep,
    work: Callable[[], AbstractContextManager[Progress]],
) -> Answered:
    """Return the replies to all that is asked about pairs.

    The replies are a stage, identified by the requests and the model; `keep` and `work` are those of `Subject`. Raises
    RunError if too many requests have no reply, and the errors of `answering`; replies until then are kept, and the
    next call asks for the others alone.
    """
    digests, requests = keyed_requests(judge, pairs, answering.identity)

    def ask(folder: Path) -> None:
        replies = Replies(folder / REPLIES)
        missing = {digest: request for digest, request in requests.items() if digest not in replies.known}
        problems = {}
        if missing:
            with work() as progress:
                asked = answering.ask(missing, replies.add, progress)
            problems = {**asked.failed, **asked.refused}
            # A model on this machine refuses a request always: the metric is then missing, with the reason.
            lost = asked.failed if asked.final else problems
            every = list(chain.from_iterable(digests.values()))
            count = sum(digest in lost for digest in every)
            if count > MOST_MISSING * len(every):
                raise RunError(
                    f"{count} of {len(every)} requests to the judge {judge.name} have no reply: "
                    f"{next(iter(lost.values()))}. The other replies are kept. Give the same command again, which asks "
                    "for the missing ones alone; if the server always refuses them, name another judge or endpoint."
                )
        (folder / REPLIES).touch()
        (folder / PROBLEMS).write_text(json.dumps(problems, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    folder = keep("judge", replies_facts(requests), ask)
    problems = json.loads((folder / PROBLEMS).read_text(encoding="utf-8"))
    return Answered(digests, Replies(folder / REPLIES), problems)


def pair_judgements(judge: PairJudge, answered: Answered) -> list[Judgement]:
    """Read the replies about pairs, whose `first` is ours and `second` the other one.

    Two equal responses are a tie. Two orders that disagree are a tie; those of a graded judge are averaged.
    """
    judged = []
    for key, digests in answered.digests.items():
        if not digests:
            judged.append(Judgement(key, TIE, TIE, TIE))
            continue
        (first, second), problem = answered.read(key, judge.preference)
        preference = None
        if second is not None:
            second = 1 - second
            if first is not None:
                preference = (first + second) / 2 if judge.graded or first == second else TIE
        judged.append(Judgement(key, first, second, preference, problem))
    return judged


def grades(judge: GradeJudge, answered: Answered) -> list[Graded]:
    """Read the replies about the responses that are `first` in the pairs."""
    graded = []
    for key in answered.digests:
        (grade,), problem = answered.read(key, judge.grade)
        graded.append(Graded(key, grade, problem))
    return graded


def pair_means(judgements: Sequence[Judgement], pairs: Mapping[str, Pair]) -> dict[str, dict[str, float]]:
    """Return the values of each metric, by the ids of pairs with both verdicts.

    The biases, a judge's preferences besides quality, leave out equal responses; that of length is of pairs that both
    orders decide alike.
    """
    means: dict[str, dict[str, float]] = {WIN_RATE: {}, "position_bias": {}, "order_agreement": {}, "length_bias": {}}
    for one in judgements:
        first, second, pair = one.shown_first, one.shown_second, pairs[one.id]
        if first is None or second is None or one.preference is None:
            continue
        means[WIN_RATE][one.id] = one.preference
        if pair.first == pair.second:
            continue
        means["position_bias"][one.id] = (first + 1 - second) / 2
        means["order_agreement"][one.id] = float(_winner(first) == _winner(second))
        if one.outcome and len(pair.first) != len(pair.second):
            means["length_bias"][one.id] = float((one.outcome > 0) == (len(pair.first) > len(pair.second)))
    return means


def _winner(preference: float) -> int:
    return (preference > TIE) - (preference < TIE)


def verdict_scores(
    judged: Verdicts,
    counts: Mapping[str, int],
    means: Mapping[str, Mapping[str, float]],
    judge: str,
) -> Scored:
    """Return the failures, and the means of values of examples; `counts` has the requests about each example.

    Where more than 5 % of the requests have no verdict, the means are missing, with the reason.
    """
    scored = Scored()

    def failures() -> Scores:
        if not any(counts.values()):
            raise MetricError("The judge was asked nothing: all responses equal the references.")
        shares = [one.unread / max(counts[one.id], 1) for one in judged]
        ids = [one.id for one in judged]
        weights = [counts[key] for key in ids]
        return {FAILURES: mean_by_prompt([shares], ids, MEASURES[FAILURES], weights_RN=[weights])}

    def mean(name: str, values: Mapping[str, float]) -> Scores:
        check_verdicts(judged, counts, judge)
        if not values:
            raise MetricError("No pair of responses has a verdict that tells.")
        return {name: mean_by_prompt([list(values.values())], list(values), MEASURES[name])}

    scored.add((FAILURES,), failures)
    for name, values in means.items():
        scored.add((name,), partial(mean, name, values))
    return scored


def check_verdicts(judged: Verdicts, counts: Mapping[str, int], judge: str) -> None:
    """Raise MetricError where more than 5 % of the requests have no verdict; `judge` begins the sentence."""
    missing = sum(one.unread for one in judged)
    total = sum(counts.values())
    if missing > MOST_MISSING * total:
        reason = next(one.problem for one in judged if one.unread)
        raise MetricError(
            f"{judge} gave no verdict to {missing} of {total} requests ({missing / total:.0%}; at most "
            f"{MOST_MISSING:.0%} may be without): {reason}. Take a judge model that keeps to the form."
        )


def win_rate(preferences: Sequence[float]) -> tuple[float, float]:
    """Return the mean preference, a fraction, and its standard error over pairs, as AlpacaEval defines them."""
    return statistics.fmean(preferences), statistics.stdev(preferences) / math.sqrt(len(preferences))


def expected_requests(rule: JudgeRule, judge: Judge, pairs: Iterable[Pair], *, unknown: int) -> Requests:
    """Return how many requests a judge gets, and the tokens of their prompts and replies at most.

    Each prompt has `unknown` tokens of responses that are not there yet.
    """
    requests = [request for pair in pairs for request in requests_of(judge, pair)]
    return tokens_of(rule.model_of(judge), requests, unknown)


def unread_pairs(corpus: str, limit: int | None) -> list[Pair]:
    """Return pairs that stand for instructions that are not here, as many as their source has: none if unknown."""
    count = least(limit, SOURCES[corpus].rows) if corpus in SOURCES else 0
    return [Pair("?" * BYTES_PER_TOKEN * PROMPT_TOKENS, "?", "!")] * (count or 0)


def tokens_of(model: str, requests: Sequence[JudgeRequest], unknown: int = 0) -> Requests:
    """Return requests to a model as a cost, with the tokens of their prompts and replies at most."""
    read = written = 0
    for request in requests:
        read += len(request.text.encode()) // BYTES_PER_TOKEN + unknown
        written += int(request.options.get("max_tokens", REPLY_TOKENS))
    return Requests(model, len(requests), read, written)
