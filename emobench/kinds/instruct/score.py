"""Responses to scores that need no judge: their length, whether they ended, and their overlap with the references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emobench.kinds.instruct.responses import Response
from emobench.kinds.interface import Scored
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.metrics.rouge import rouge
from emobench.tasks.scores import Measure, Score

ENDED = Measure(None, "fraction", secondary=True)
TOKENS = Measure(None, "tokens", secondary=True)


def reference_scores(responses: Sequence[Response]) -> Scored:
    """Return ROUGE-L, the share of responses that ended by themselves, and the mean length in tokens."""
    ids = [one.id for one in responses]
    found = Scored()
    found.add(("rougeL",), lambda: _rouge(responses, ids))
    found.scores["ended"] = mean_by_prompt([[float(one.ended) for one in responses]], ids, ENDED)
    found.scores["response_tokens"] = mean_by_prompt([[float(len(one.ids)) for one in responses]], ids, TOKENS)
    return found


def _rouge(responses: Sequence[Response], ids: Sequence[str]) -> Mapping[str, Score]:
    return rouge([[one.text for one in responses]], [one.reference for one in responses], ids, variants=("rougeL",))
