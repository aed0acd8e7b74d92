"""The oracle language on the model's device, against its definition: sums over all hidden paths, and long streams."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from emobench.data.oracle.language import HiddenMarkovLanguage, oracle_language
from emobench.training.context import DeviceLanguage, stream_states

SMALL = HiddenMarkovLanguage(
    start_S=np.array([0.9, 0.1]),
    transition_SS=np.array([[0.3, 0.7], [0.6, 0.4]]),
    emission_SV=np.array([[0.7, 0.2, 0.1], [0.1, 0.4, 0.5]]),  # symbol 2 is EOS
)


def stream_probability(symbols: tuple[int, ...], first_S: np.ndarray) -> float:
    """Return the probability of symbols of a stream, by summing over every path of hidden states."""
    total = 0.0
    for path in itertools.product(range(2), repeat=len(symbols)):
        p = first_S[path[0]]
        for i, (state, symbol) in enumerate(zip(path, symbols, strict=True)):
            p *= SMALL.emission_SV[state, symbol]
            if i + 1 < len(path):
                step = SMALL.start_S if symbol == SMALL.eos_id else SMALL.transition_SS[state]
                p *= step[path[i + 1]]
        total += p
    return total


def test_states_of_a_stream_stay_as_they_are() -> None:
    """Where a text ends, the next one starts; by brute force, the state after any symbol has the same distribution."""
    for language in (SMALL, oracle_language("target")):
        anywhere_S = stream_states(language)
        assert anywhere_S.sum() == pytest.approx(1, abs=1e-12)
        end_S = language.emission_SV[:, language.eos_id]
        after_S = (anywhere_S * (1 - end_S)) @ language.transition_SS + (anywhere_S @ end_S) * language.start_S
        np.testing.assert_allclose(after_S, anywhere_S, rtol=0, atol=1e-12)


@pytest.mark.parametrize("row", [(0,), (2, 0), (1, 2), (0, 1, 1), (0, 2, 1, 0)])
def test_p_is_the_conditional_distribution_of_the_stream_given_the_row(row: tuple[int, ...]) -> None:
    language = DeviceLanguage(SMALL)
    p_TV = language.state_probs(torch.tensor([row]))[0] @ language.emission_SV
    first_S = stream_states(SMALL)
    for t in range(len(row)):
        prefix = row[: t + 1]
        expected = [stream_probability((*prefix, v), first_S) / stream_probability(prefix, first_S) for v in range(3)]
        np.testing.assert_allclose(p_TV[t].numpy(), expected, rtol=1e-6)


def test_a_row_that_starts_with_eos_gets_the_language_itself() -> None:
    oracle = oracle_language("target")
    texts = oracle.sample(6, seed=1)
    longest = max(map(len, texts))
    ids = torch.full((6, longest + 1), oracle.eos_id)
    for row, text in zip(ids, texts, strict=True):
        row[1 : len(text) + 1] = torch.tensor(text)
    expected = oracle.state_probs(ids.numpy())
    found = DeviceLanguage(oracle).state_probs(ids)
    inside = torch.arange(longest + 1) <= torch.tensor([len(text) for text in texts])[:, None]
    np.testing.assert_allclose(found[inside].numpy(), expected[inside.numpy()], rtol=1e-6, atol=1e-9)
    assert found.dtype == torch.float32


def test_padding_changes_nothing_before_it_and_is_finite() -> None:
    language = DeviceLanguage(oracle_language("source"))
    ids: Tensor = torch.randint(512, (3, 9), generator=torch.Generator().manual_seed(0))
    padded = torch.cat([ids, torch.full((3, 4), 512)], dim=1)
    found = language.state_probs(padded)
    assert torch.equal(found[:, :9], language.state_probs(ids))
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 13))
