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
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emobench.core.errors import MetricError, RunError
from emobench.core.extras import require
from emobench.core.settings import content_hash
from emobench.kinds.cost import Requests, least
from emobench.kinds.instruct.instructions import SOURCES
from emobench.kinds.instruct.judging.judge import (
    JUDGES,
    Answering,
    Asked,
    GradeJudge,
    Judge,
    JudgeReply,
    JudgeRequest,
    Pair,
    PairJudge,
)
from emobench.kinds.instruct.responses import Response
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import Journal
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.models.model import Model
from emobench.tasks.scores import MOST_MISSING, Measure, Score

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


def judge_scores(subject: Subject, rules: InstructProtocol, task: str, responses: Sequence[Response]) -> Scored:
    """Return the metrics of the judge that the rules name.

    Raises RunError if too many requests have no reply, and the errors of `ask_about`; replies until then are kept.
    """
    judge = JUDGES.load(rules.judge.name).plugin
    answering = _answering(subject, rules.judge, judge)
    pairs = {one.id: Pair(one.instruction, one.text, one.reference, one.input) for one in responses}
    title = f"judge {task} with {judge.name}"
    replies, problems = kept_replies(judge, pairs, answering, subject.keep, lambda: subject.work(title, "requests"))
    counts = {key: len(keys) for key, keys in request_keys(judge, pairs, answering.identity).items()}
    name = f"{judge.name}, answered by {rules.judge.model or judge.model},"
    judged: Sequence[Graded] | Sequence[Judgement]
    if isinstance(judge, GradeJudge):
        judged = grades(judge, pairs, answering.identity, replies, problems)
        scored = grade_scores(judged, counts, name)
    else:
        assert isinstance(judge, PairJudge)
        judged = pair_judgements(judge, pairs, answering.identity, replies, problems)
        scored = pair_scores(judged, counts, pairs, name)
    scored.files[JUDGEMENTS] = "".join(f"{json.dumps(asdict(one), ensure_ascii=False)}\n" for one in judged)
    read, written = replies.tokens()
    who = {"judge": rules.judge.name, "models": replies.models, "replies": len(replies)}
    scored.files[JUDGE] = json.dumps({**who, "tokens_read": read, "tokens_written": written}, indent=1) + "\n"
    return scored


def read_preferences(path: Path) -> dict[str, float]:
    """Return how much the model's response to each instruction is preferred, from a file of judgements with verdicts.

    Empty where each response was graded by itself.
    """
    preferences = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        judged = json.loads(line)
        if judged.get("preference") is not None:
            preferences[judged["id"]] = judged["preference"]
    return preferences


def kept_replies(
    judge: Judge,
    pairs: Mapping[str, Pair],
    answering: Answering,
    keep: Callable[[str, Mapping[str, Any], Callable[[Path], None]], Path],
    work: Callable[[], AbstractContextManager[Callable[[int, int], None]]],
) -> tuple[Replies, Mapping[str, str]]:
    """Return the replies to all that is asked about pairs, and why others have none, by the digest of the request.

    The replies are a stage, identified by the requests and the model; `keep` and `work` are those of `Subject`.
    """
    digests = list(chain.from_iterable(request_keys(judge, pairs, answering.identity).values()))

    def ask(folder: Path) -> None:
        with work() as progress:
            asked = ask_about(judge, pairs, answering, Replies(folder / REPLIES), progress)
        problems = {**asked.failed, **asked.refused}
        # A model on this machine refuses a request always: the metric is then missing, with the reason.
        lost = asked.failed if asked.final else problems
        missing = sum(digest in lost for digest in digests)
        if missing > MOST_MISSING * len(digests):
            reason = next(iter(lost.values()))
            raise RunError(
                f"{missing} of {len(digests)} requests to the judge {judge.name} have no reply: {reason}. The other "
                "replies are kept. Give the same command again, which asks for the missing ones alone; if the server "
                "always refuses them, name another judge or another endpoint."
            )
        (folder / REPLIES).touch()
        (folder / PROBLEMS).write_text(json.dumps(problems, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    folder = keep("judge", replies_facts(digests), ask)
    return Replies(folder / REPLIES), json.loads((folder / PROBLEMS).read_text(encoding="utf-8"))


def replies_facts(digests: Iterable[str]) -> dict[str, Any]:
    """Return the facts that identify the stage of the replies to requests."""
    return {"requests": content_hash(sorted(set(digests)))}


def _answering(subject: Subject, rule: JudgeRule, judge: Judge) -> Answering:
    if rule.backend == "endpoint":
        return rule.endpoint(judge)
    from emobench.kinds.instruct.judging.local import LocalModel

    other = subject.other(rule.local_model(judge))
    return LocalModel(other.model, other.tokenizer, rule.model or judge.model, content_hash(dict(other.identity)))


def check_judge(rule: JudgeRule, judge: Judge, model: Model) -> None:
    """Raise the UserErrors of asking that are known before any request is sent."""
    if rule.backend == "endpoint":
        require("openai")
        return
    from emobench.kinds.instruct.judging.local import LocalModel

    tokenizer = model.other(rule.local_model(judge)).tokenizer
    for request in requests_of(judge, Pair("Name a prime number.", "Seven.", "Nine.")):
        LocalModel(None, tokenizer, rule.model or judge.model, "").prompt_ids(request)


def expected_requests(rule: JudgeRule, judge: Judge, pairs: Iterable[Pair], *, unknown: int) -> Requests:
    """Return how many requests a judge gets, and the tokens of their prompts and replies at most.

    Each prompt has `unknown` tokens of responses that are not there yet.
    """
    requests = list(chain.from_iterable(requests_of(judge, pair) for pair in pairs))
    return tokens_of(rule.model or judge.model, requests, unknown)


def unread_pairs(corpus: str, limit: int | None) -> list[Pair]:
    """Return pairs that stand for instructions that are not here, as many as their source has: none if unknown."""
    count = least(limit, SOURCES[corpus].rows) if corpus in SOURCES else 0
    return [Pair("?" * BYTES_PER_TOKEN * PROMPT_TOKENS, "?", "!")] * (count or 0)


def tokens_of(model: str, requests: Sequence[JudgeRequest], unknown: int = 0) -> Requests:
    """Return requests to a model as a cost, with the tokens of their prompts and replies at most."""
    read = written = 0
    for request in requests:
        prompt = request.prompt
        if not isinstance(prompt, str):
            prompt = "".join(message["content"] for message in prompt)
        read += len(prompt.encode()) // BYTES_PER_TOKEN + unknown
        written += int(request.options.get("max_tokens", REPLY_TOKENS))
    return Requests(model, len(requests), read, written)


def pair_scores(
    judged: Sequence[Judgement], counts: Mapping[str, int], pairs: Mapping[str, Pair], judge: str
) -> Scored:
    """Return the win rate, biases and failures of judgements; `counts` has the requests about each pair.

    Where more than 5 % of the requests have no verdict, the others are missing, with the reason.
    """
    leaning = leanings(judged, pairs)
    preferences = {one.id: one.preference for one in judged if one.preference is not None}
    means = {
        WIN_RATE: preferences,
        "position_bias": leaning.first,
        "order_agreement": leaning.agreement,
        "length_bias": leaning.longer,
    }
    return _scored(judged, counts, means, judge)


def grade_scores(judged: Sequence[Graded], counts: Mapping[str, int], judge: str) -> Scored:
    """Return the mean grade and the failures; where more than 5 % have no grade it is missing, with the reason."""
    given = {one.id: one.grade for one in judged if one.grade is not None}
    return _scored(judged, counts, {GRADE: given}, judge)


def _scored(
    judged: Sequence[Judgement] | Sequence[Graded],
    counts: Mapping[str, int],
    means: Mapping[str, Mapping[str, float]],
    judge: str,
) -> Scored:
    """Return the failures, and the means of values of examples as far as enough verdicts are there."""
    scored = Scored()

    def failures() -> dict[str, Score]:
        if not any(counts.values()):
            raise MetricError("The judge was asked nothing: all responses equal the references.")
        shares = [one.unread / max(counts[one.id], 1) for one in judged]
        ids = [one.id for one in judged]
        weights = [counts[key] for key in ids]
        return {FAILURES: mean_by_prompt([shares], ids, MEASURES[FAILURES], weights_RN=[weights])}

    def mean(name: str) -> dict[str, Score]:
        check_verdicts(judged, counts, judge)
        values = means[name]
        if not values:
            raise MetricError("No pair of responses has a verdict that tells.")
        return {name: mean_by_prompt([list(values.values())], list(values), MEASURES[name])}

    scored.add((FAILURES,), failures)
    for name in means:
        scored.add((name,), partial(mean, name))
    return scored


def check_verdicts(judged: Sequence[Judgement] | Sequence[Graded], counts: Mapping[str, int], judge: str) -> None:
    """Raise MetricError where more than 5 % of the requests have no verdict; `judge` begins the sentence."""
    missing, total = sum(one.unread for one in judged), sum(counts.values())
    if missing > MOST_MISSING * total:
        reason = next(one.problem for one in judged if one.unread)
        raise MetricError(
            f"{judge} gave no verdict to {missing} of {total} requests ({missing / total:.0%}; at most "
            f"{MOST_MISSING:.0%} may be without): {reason}. Take a judge model that keeps to the form."
        )


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


class Replies:
    """The replies to requests, in a file that survives a kill."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._known: dict[str, JudgeReply] = {}
        for line in self._journal.read():
            key, _, fields = line.partition(" ")
            self._known[key] = JudgeReply.from_json(json.loads(fields))

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
        read = written = 0
        for reply in self._known.values():
            read += reply.prompt_tokens
            written += reply.reply_tokens
        return read, written


def request_key(identity: str, request: JudgeRequest) -> str:
    """Return the digest of the model that answers, the prompt and the options."""
    prompt: Any = request.prompt
    if not isinstance(prompt, str):
        prompt = [dict(message) for message in prompt]
    text = json.dumps([identity, prompt, dict(request.options)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


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


def request_keys(judge: Judge, pairs: Mapping[str, Pair], identity: str) -> dict[str, tuple[str, ...]]:
    """Return the digests of the requests about each pair; `identity` is that of the model that answers."""
    keys = {}
    for key, pair in pairs.items():
        keys[key] = tuple(request_key(identity, request) for request in requests_of(judge, pair))
    return keys


def ask_about(
    judge: Judge,
    pairs: Mapping[str, Pair],
    answering: Answering,
    replies: Replies,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Asked:
    """Send the requests that have no reply yet.

    Raises the errors of `answering`; replies until then are kept, and the next call asks for the others alone.
    """
    missing: dict[str, JudgeRequest] = {}
    for pair in pairs.values():
        for request in requests_of(judge, pair):
            digest = request_key(answering.identity, request)
            if digest not in replies:
                missing[digest] = request
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
    judged = []
    for key, digests in request_keys(judge, pairs, identity).items():
        if not digests:
            judged.append(Judgement(key, TIE, TIE, TIE))
            continue
        first, second = (_read(judge.preference, replies.get(digest)) for digest in digests)
        preference = None
        if second is not None:
            second = 1 - second
            if first is not None and judge.graded:
                preference = (first + second) / 2
            elif first is not None:
                preference = first if first == second else TIE
        judged.append(Judgement(key, first, second, preference, _problem(preference, digests, problems)))
    return judged


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


def grades(
    judge: GradeJudge,
    pairs: Mapping[str, Pair],
    identity: str,
    replies: Replies,
    problems: Mapping[str, str] = MappingProxyType({}),
) -> list[Graded]:
    """Read the replies about the responses that are `first` in the pairs."""
    graded = []
    for key, digests in request_keys(judge, pairs, identity).items():
        grade = _read(judge.grade, replies.get(digests[0]))
        graded.append(Graded(key, grade, _problem(grade, digests, problems)))
    return graded


def _read(parse: Callable[[JudgeReply], float | None], reply: JudgeReply | None) -> float | None:
    return None if reply is None else parse(reply)


def _problem(verdict: float | None, digests: Sequence[str], problems: Mapping[str, str]) -> str:
    if verdict is not None:
        return ""
    return next((problems[digest] for digest in digests if digest in problems), "the reply has no verdict")


def win_rate(preferences: Sequence[float]) -> tuple[float, float]:
    """Return the mean preference, a fraction, and its standard error over pairs, as AlpacaEval defines them."""
    return statistics.fmean(preferences), statistics.stdev(preferences) / math.sqrt(len(preferences))


@dataclass(frozen=True)
class Leanings:
    """A judge's preferences besides quality, by the ids of pairs with both verdicts; none of equal responses."""

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
        if a is None or b is None or one.preference is None or pair.first == pair.second:
            continue
        first[one.id] = (a + 1 - b) / 2
        agreement[one.id] = float(_winner(a) == _winner(b))
        if one.outcome and len(pair.first) != len(pair.second):
            longer[one.id] = float((one.outcome > 0) == (len(pair.first) > len(pair.second)))
    return Leanings(first, agreement, longer)


def _winner(preference: float) -> int:
    return (preference > TIE) - (preference < TIE)
