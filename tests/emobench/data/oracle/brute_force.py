"""A small hidden Markov language, and the probability of a text by every path of its states."""

from __future__ import annotations

import itertools

import numpy as np

from emobench.data.oracle.language import HiddenMarkovLanguage

EOS = 6


def small_language() -> HiddenMarkovLanguage:
    """Three states, six words and EOS; unequal rows, so that a transposed table shows."""
    generator = np.random.default_rng(1)
    emission_SV = generator.dirichlet(np.full(7, 0.3), size=3) * 0.8 + 0.2 / 7
    start_S, transition_SS = generator.dirichlet(np.ones(3)), generator.dirichlet(np.full(3, 0.5), size=3)
    return HiddenMarkovLanguage(start_S, transition_SS, emission_SV)


def probability_by_paths(language: HiddenMarkovLanguage, symbols: tuple[int, ...]) -> float:
    """The probability that a text begins with these symbols: a sum over all paths of hidden states."""
    total = 0.0
    for path in itertools.product(range(3), repeat=len(symbols)):
        term = 1.0
        for t, (state, symbol) in enumerate(zip(path, symbols, strict=True)):
            term *= language.start_S[state] if t == 0 else language.transition_SS[path[t - 1], state]
            term *= language.emission_SV[state, symbol]
        total += term
    return total
