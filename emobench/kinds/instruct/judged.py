"""Responses to scores by a judge: who answers, every reply kept in a stage of its own, and what the verdicts say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from emobench.core.errors import MetricError, RunError
from emobench.core.extras import require
from emobench.core.settings import content_hash
from emobench.kinds.auxiliary import UnloadedModel
from emobench.kinds.cost import Requests, least
from emobench.kinds.instruct.instructions import SOURCES
from emobench.kinds.instruct.judging.judge import Answering, GradeJudge, Judge, JudgeRequest, Pair, PairJudge
from emobench.kinds.instruct.judging.judgements import (
    Graded,
    Judgement,
    Replies,
    ask_about,
    grades,
    leanings,
    pair_judgements,
    request_keys,
    requests_of,
)
from emobench.kinds.instruct.responses import Response
from emobench.kinds.instruct.rules import InstructProtocol, JudgeRule
from emobench.kinds.interface import Scored, Subject
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.tasks.scores import MOST_MISSING, Measure, Score

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
LEANINGS = {"position_bias": "first", "order_agreement": "agreement", "length_bias": "longer"}
"""Metric -> the field of `Leanings` that it is the mean of."""
REPLY_TOKENS = 512
"""Of a reply, for the estimate, where a judge names no `max_tokens`."""
BYTES_PER_TOKEN = 3
"""Of a judge's prompt: English has about 4, and markup less."""
PROMPT_TOKENS = 120
"""Of an instruction in the Alpaca prompt, for the estimate, where it is not here."""


def judge_scores(subject: Subject, rules: InstructProtocol, task: str, responses: Sequence[Response]) -> Scored:
    """Return the metrics of the judge that the rules name.

    Raises RunError where too many requests have no reply, and what asking raises; the replies until then are kept.
    """
    judge = subject.components.judge(rules.judge.name).component
    answering = _answering(subject, rules.judge, judge)
    pairs = {one.id: Pair(one.instruction, one.text, one.reference, one.input) for one in responses}
    title = f"judge {task} with {judge.name}"
    replies, problems = kept_replies(judge, pairs, answering, subject.keep, lambda: subject.work(title, "requests"))
    given = (pairs, answering.identity, replies, problems)
    counts = {key: len(keys) for key, keys in request_keys(judge, pairs, answering.identity).items()}
    name = f"{judge.name}, answered by {rules.judge.model or judge.model},"
    if isinstance(judge, GradeJudge):
        judged: Sequence[Graded | Judgement] = grades(judge, *given)
        found = grade_scores(judged, counts, name)  # type: ignore[arg-type]
    else:
        assert isinstance(judge, PairJudge)
        judged = pair_judgements(judge, *given)
        found = pair_scores(judged, counts, pairs, name)
    found.files[JUDGEMENTS] = "".join(f"{json.dumps(asdict(one), ensure_ascii=False)}\n" for one in judged)
    read, written = replies.tokens()
    who = {"judge": rules.judge.name, "models": replies.models, "replies": len(replies)}
    found.files[JUDGE] = json.dumps({**who, "tokens_read": read, "tokens_written": written}, indent=1) + "\n"
    return found


def read_preferences(path: Path) -> dict[str, float]:
    """Return how much the model's response to each instruction is preferred, from a file of judgements with verdicts.

    Empty where each response was graded by itself.
    """
    with path.open(encoding="utf-8") as lines:
        told = [json.loads(line) for line in lines]
    return {one["id"]: one["preference"] for one in told if one.get("preference") is not None}


def kept_replies(
    judge: Judge,
    pairs: Mapping[str, Pair],
    answering: Answering,
    keep: Callable[[str, Mapping[str, Any], Callable[[Path], None]], Path],
    work: Callable[[], AbstractContextManager[Callable[[int, int], None]]],
) -> tuple[Replies, Mapping[str, str]]:
    """Return the replies to all that is asked about pairs, and why others have none, by the digest of the request.

    They are a stage, which what is asked and who answers identify; `keep` and `work` are those of `Subject`.
    """
    keys = request_keys(judge, pairs, answering.identity)
    total = sum(map(len, keys.values()))

    def ask(folder: Path) -> None:
        with work() as progress:
            asked = ask_about(judge, pairs, answering, Replies(folder / REPLIES), progress)
        problems = {**asked.failed, **asked.refused}
        # What a model on this machine refuses, it always refuses: the metric is then missing, with the reason.
        lost = asked.failed if asked.final else problems
        missing = sum(digest in lost for digests in keys.values() for digest in digests)
        if missing > MOST_MISSING * total:
            reason = next(iter(lost.values()))
            raise RunError(
                f"{missing} of {total} requests to the judge {judge.name} have no reply: {reason}. The other replies "
                "are kept. Give the same command again, which asks for the missing ones alone; if the server always "
                "refuses them, name another judge or another endpoint."
            )
        (folder / REPLIES).touch()
        (folder / PROBLEMS).write_text(json.dumps(problems, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    folder = keep("judge", replies_facts(digest for digests in keys.values() for digest in digests), ask)
    return Replies(folder / REPLIES), json.loads((folder / PROBLEMS).read_text(encoding="utf-8"))


def replies_facts(digests: Iterable[str]) -> dict[str, Any]:
    """Return what identifies the stage of the replies to requests."""
    return {"requests": content_hash(sorted(set(digests)))}


def _answering(subject: Subject, rule: JudgeRule, judge: Judge) -> Answering:
    if rule.backend == "endpoint":
        return rule.endpoint(judge)
    from emobench.kinds.instruct.judging.local import LocalModel

    other = subject.other(rule.local_model(judge))
    return LocalModel(other.model, other.tokenizer, rule.model or judge.model, content_hash(dict(other.facts)))


def check_judge(rule: JudgeRule, judge: Judge, model: UnloadedModel) -> None:
    """Raise a UserError for what asking would raise, as far as it is known before anybody is asked."""
    if rule.backend == "endpoint":
        require("openai")
        return
    from emobench.kinds.instruct.judging.local import LocalModel

    known = model.known(rule.local_model(judge))
    for request in requests_of(judge, Pair("Name a prime number.", "Seven.", "Nine.")):
        LocalModel(None, known.tokenizer, rule.model or judge.model, "").prompt_ids(request)


def expected_requests(rule: JudgeRule, judge: Judge, pairs: Iterable[Pair], *, unknown: int) -> Requests:
    """Return how many requests a judge gets, and the tokens of their prompts and replies at most.

    Each prompt has `unknown` tokens of responses that are not there yet.
    """
    requests = [request for pair in pairs for request in requests_of(judge, pair)]
    return tokens_of(rule.model or judge.model, requests, unknown)


def unread_pairs(corpus: str, limit: int | None) -> list[Pair]:
    """Return pairs that stand for instructions that are not here, as many as their source has: none if unknown."""
    count = least(limit, SOURCES[corpus].rows) if corpus in SOURCES else 0
    return [Pair("?" * BYTES_PER_TOKEN * PROMPT_TOKENS, "?", "!")] * (count or 0)


def tokens_of(model: str, requests: Sequence[JudgeRequest], unknown: int = 0) -> Requests:
    """Return requests to a model as a cost, with the tokens of their prompts and replies at most."""
    read = sum(len(_text(request.prompt).encode()) // BYTES_PER_TOKEN + unknown for request in requests)
    written = sum(int(request.options.get("max_tokens", REPLY_TOKENS)) for request in requests)
    return Requests(model, len(requests), read, written)


def _text(prompt: str | tuple[Mapping[str, str], ...]) -> str:
    return prompt if isinstance(prompt, str) else "".join(message["content"] for message in prompt)


def pair_scores(
    judged: Sequence[Judgement], counts: Mapping[str, int], pairs: Mapping[str, Pair], judge: str
) -> Scored:
    """Return the win rate, biases and failures of judgements; `counts` has the requests about each pair.

    Where more than 5 % of the requests have no verdict, the others are missing, with the reason.
    """
    leaning = leanings(judged, pairs)
    means = {WIN_RATE: {one.id: one.preference for one in judged if one.preference is not None}}
    means |= {name: getattr(leaning, field) for name, field in LEANINGS.items()}
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
    found = Scored()
    found.add((FAILURES,), lambda: _failures(judged, counts))

    def mean(name: str) -> dict[str, Score]:
        check_verdicts(judged, counts, judge)
        return {name: _mean(means[name], MEASURES[name])}

    for name in means:
        found.add((name,), partial(mean, name))
    return found


def check_verdicts(judged: Sequence[Judgement] | Sequence[Graded], counts: Mapping[str, int], judge: str) -> None:
    """Raise MetricError where more than 5 % of the requests have no verdict; `judge` begins the sentence."""
    failures = _without_verdict(judged)
    missing, total = sum(failures.values()), sum(counts.values())
    if missing > MOST_MISSING * total:
        reason = next(one.problem for one in judged if failures[one.id])
        raise MetricError(
            f"{judge} gave no verdict to {missing} of {total} requests ({missing / total:.0%}; at most "
            f"{MOST_MISSING:.0%} may be without): {reason}. Take a judge model that keeps to the form."
        )


def _without_verdict(judged: Sequence[Judgement] | Sequence[Graded]) -> dict[str, int]:
    """Return how many of the requests about each pair or response have no verdict."""
    return {
        one.id: int(one.grade is None)
        if isinstance(one, Graded)
        else sum(side is None for side in (one.shown_first, one.shown_second))
        for one in judged
    }


def _failures(judged: Sequence[Judgement] | Sequence[Graded], counts: Mapping[str, int]) -> dict[str, Score]:
    if not any(counts.values()):
        raise MetricError("The judge was asked nothing: all responses equal the references.")
    failures = _without_verdict(judged)
    ids = list(failures)
    shares = [failures[key] / max(counts[key], 1) for key in ids]
    weights = [counts[key] for key in ids]
    return {FAILURES: mean_by_prompt([shares], ids, MEASURES[FAILURES], weights_RN=[weights])}


def _mean(values: Mapping[str, float], measure: Measure) -> Score:
    if not values:
        raise MetricError("No pair of responses has a verdict that tells.")
    return mean_by_prompt([list(values.values())], list(values), measure)
