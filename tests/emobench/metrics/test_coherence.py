"""Coherence: cosines against a plain loop; blank continuations are left out, and vectors that are none refused."""

from __future__ import annotations

import numpy as np
import pytest

from emobench.core.errors import MetricError
from emobench.metrics.coherence import coherence
from emobench.tasks.scores import SECONDARY

VECTORS = {"a": [1.0, 0.0], "b": [0.0, 2.0], "c": [3.0, 4.0], "d": [-1.0, -1.0]}
PREFIXES = np.array([[2.0, 0.0], [1.0, 1.0]], dtype=np.float32)


def encode(texts: list[str]) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts], dtype=np.float32)


def test_cosines_by_prompt_and_by_run() -> None:
    found = coherence(PREFIXES, [["a", "c"], ["b", " \n"]], ["p", "q"], encode)
    expected = 7 / (5 * 2**0.5)
    assert found.examples == {"p": (0.5, 2.0), "q": (pytest.approx(expected), 1.0)}
    assert found.repeats == ((pytest.approx((1 + expected) / 2),), (0.0,))
    assert found.value == pytest.approx((1 + 0 + expected) / 3)
    assert (found.n, found.unit, found.flags, found.higher_is_better) == (2, "cosine", (SECONDARY,), True)
    assert coherence(PREFIXES, [["d", "d"]], ["p", "q"], encode).repeats[0][0] == pytest.approx(-(1 + 2**-0.5) / 2)


def test_nothing_to_compare_is_a_metric_error() -> None:
    with pytest.raises(MetricError, match="All continuations are blank"):
        coherence(PREFIXES, [["", ""]], ["p", "q"], encode)
    with pytest.raises(MetricError, match="embeddings of zero"):
        coherence(PREFIXES * 0, [["a", "b"]], ["p", "q"], encode)
