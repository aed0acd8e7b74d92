"""The shots of each test example: found once for a data set, a retriever and its encoder, and kept.

Legend: Q test examples, P pool, K shots, N texts, D width.
"""

from __future__ import annotations

from emobench.data.labelled import Example, LabelledData
from emobench.evaluation.icl.examples import pool_of, test_of
from emobench.evaluation.icl.retriever import RetrievalContext
from emobench.evaluation.kinds import Subject
from emobench.tasks.icl import IclProtocol
from emobench.tasks.spec import Task

SHOTS = "shots.json"


def find_shots(subject: Subject, task: Task, data: LabelledData) -> list[tuple[Example, ...]]:
    """Return each test example's shots, nearest first."""
    rules = task.protocol
    assert isinstance(rules, IclProtocol)
    pool, test = pool_of(rules, data), test_of(rules, data)
    if rules.shots == 0:
        return [()] * len(test)
    context = RetrievalContext(rules.seed, lambda texts: subject.sentence_encoder(rules.encoder).encode(texts))
    found: list[tuple[Example, ...]] = [()] * len(test)
    groups: dict[str, list[int]] = {}
    for place, example in enumerate(test):
        groups.setdefault(example.group, []).append(place)
    for group, places in groups.items():
        own = [example for example in pool if example.group == group]
        indices_QK = subject.retriever(rules.retriever).retrieve(
            [e.text(rules.query) for e in own], [test[p].text(rules.query) for p in places], rules.shots, context
        )
        for place, row in zip(places, indices_QK, strict=True):
            found[place] = tuple(own[i] for i in row)
    return found
