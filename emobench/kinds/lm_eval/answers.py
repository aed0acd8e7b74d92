"""Answers of lm-evaluation-harness that survive an interruption, with the batches that it would have made anyway.

lm-eval scores each context once for all continuations of one token, the longest first. Cut at multiples of a batch in
that order, the requests make the same batches, and so the same numbers to the last bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from emobench.kinds.journal import Journal

Request = tuple[tuple[str, str], list[int], list[int]]
"""(context, continuation) as texts, and the tokens of each."""
Answer = tuple[float, bool]
"""Log-likelihood in nats, and whether each token was the most likely one."""

BATCHES = 16
"""Batches between two writes."""


class KeptAnswers:
    """Answers on disk, by the tokens of the requests that they were given to together."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._known: dict[str, list[Answer]] = {}
        for row in map(json.loads, self._journal.read()):
            self._known[row["requests"]] = [(value, greedy) for value, greedy in row["answers"]]

    def answers(
        self,
        requests: Sequence[Request],
        batch: int,
        compute: Callable[[list[Request]], list[Answer]],
        done: Callable[[int], None],
    ) -> list[Answer]:
        """Return the answers to requests, computed where they are not kept; `done` is told how many were kept."""
        found: dict[int, Answer] = {}
        for places in _parts(requests, batch * BATCHES):
            part = [requests[place] for place in places]
            key = hashlib.sha256(json.dumps([tokens for _, *tokens in part]).encode()).hexdigest()
            if key in self._known:
                done(len(part))
            else:
                self._known[key] = compute(part)
                self._journal.append([json.dumps({"requests": key, "answers": self._known[key]})])
            found.update(zip(places, self._known[key], strict=True))
        return [found[place] for place in range(len(requests))]


def _parts(requests: Sequence[Request], size: int) -> Iterator[list[int]]:
    """Yield the places of requests, `size` forwarded contexts at a time, in lm-eval's order of contexts."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, (_, context, continuation) in enumerate(requests):
        groups.setdefault(tuple(context + continuation[:-1]), []).append(place)

    def order(places: list[int]) -> Any:
        tokens = max((requests[place][1] + requests[place][2] for place in places), key=len)
        return -len(tokens), tuple(tokens)

    ordered = sorted(groups.values(), key=order)
    for start in range(0, len(ordered), size):
        yield sorted(place for places in ordered[start : start + size] for place in places)
