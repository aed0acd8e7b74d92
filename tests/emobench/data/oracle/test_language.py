"""The oracle language against brute force: every path of hidden states, every short text."""

from __future__ import annotations

import hashlib
import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.data.oracle import language
from emobench.data.oracle.language import (
    TEXT_COUNTS,
    Domain,
    HiddenMarkovLanguage,
    oracle_language,
    oracle_texts,
    oracle_tokenizer,
    oracle_words,
)

sys.path.insert(0, str(Path(__file__).parent))  # the package of tests has no __init__.py

from brute_force import EOS, probability_by_paths, small_language  # type: ignore[import-not-found]


@pytest.fixture(scope="module")
def small() -> HiddenMarkovLanguage:
    return small_language()


def test_next_symbol_probs_sum_over_all_hidden_paths(small: HiddenMarkovLanguage) -> None:
    words_BT = np.array(list(itertools.product(range(0, 6, 2), repeat=4)))  # 81 prefixes of four words
    ids_BT = np.concatenate([np.full((len(words_BT), 1), EOS), words_BT], axis=1)
    probs_BTV = small.state_probs(ids_BT) @ small.emission_SV
    assert probs_BTV.shape == (81, 5, 7)
    np.testing.assert_allclose(probs_BTV.sum(-1), 1, rtol=0, atol=1e-12)
    for words, probs_TV in zip(words_BT, probs_BTV, strict=True):
        for t in range(5):
            prefix = tuple(words[:t])
            expected = [probability_by_paths(small, (*prefix, v)) for v in range(7)]
            np.testing.assert_allclose(probs_TV[t] * probability_by_paths(small, prefix), expected, rtol=1e-12)


def test_log_prob_of_a_text_includes_its_end(small: HiddenMarkovLanguage) -> None:
    texts = [[], [4], [0, 0, 3], [5, 1, 2, 2, 0, 3]]
    expected = [math.log(probability_by_paths(small, (*text, EOS))) for text in texts]
    np.testing.assert_allclose(small.log_prob(texts), expected, rtol=1e-12)
    open_ended = [math.log(probability_by_paths(small, tuple(text))) for text in texts]
    np.testing.assert_allclose(small.log_prob(texts, [False] * 4), open_ended, rtol=1e-12, atol=1e-15)
    mixed = small.log_prob(texts, [True, False, True, False])
    np.testing.assert_allclose(mixed, [expected[0], open_ended[1], expected[2], open_ended[3]], rtol=1e-12)


def test_long_texts_do_not_underflow(small: HiddenMarkovLanguage) -> None:
    text = [1, 3] * 2_000
    log_probs_TV = np.log(small.state_probs(np.array([[EOS, *text]]))[0] @ small.emission_SV)
    by_symbols = log_probs_TV[np.arange(4_001), [*text, EOS]].sum()
    assert by_symbols < -4_000  # exp() of it is 0
    assert small.log_prob([text])[0] == pytest.approx(by_symbols, rel=1e-12)


def test_samples_have_the_language_s_probabilities(small: HiddenMarkovLanguage) -> None:
    count = 200_000
    texts = small.sample(count, seed=7)
    short = [words for n in range(3) for words in itertools.product(range(6), repeat=n)]
    probs = np.array([probability_by_paths(small, (*words, EOS)) for words in short])
    place = {words: i for i, words in enumerate(short)}
    seen = np.bincount([place.get(tuple(text), len(short)) for text in texts], minlength=len(short) + 1)
    expected = count * np.append(probs, 1 - probs.sum())
    assert expected.min() > 5
    assert stats.chisquare(seen, expected).pvalue > 0.001
    # The same check refuses a language whose states move a little differently.
    other_SS = 0.8 * small.transition_SS + 0.2 * small.transition_SS[::-1]
    other = HiddenMarkovLanguage(small.start_S, other_SS, small.emission_SV)
    probs = np.array([probability_by_paths(other, (*words, EOS)) for words in short])
    assert stats.chisquare(seen, count * np.append(probs, 1 - probs.sum())).pvalue < 1e-6


@pytest.mark.parametrize("domain", ["source", "target"])
def test_the_oracle_s_samples_have_its_probabilities(domain: Domain) -> None:
    language = oracle_language(domain)
    texts = language.sample(40_000, seed=11)
    for t in (0, 3):  # the first symbol, and the fourth of the texts that have one
        moved_S = language.start_S
        for _ in range(t):  # the word classes after t words, whatever the words
            moved_S = (moved_S * (1 - language.emission_SV[:, -1])) @ language.transition_SS
        probs_V = (moved_S @ language.emission_SV) / moved_S.sum()
        symbols = [[*text, 512][t] for text in texts if len(text) >= t]
        expected = len(symbols) * probs_V
        common = expected > 5
        seen = np.bincount(symbols, minlength=513)
        groups = np.append(seen[common], seen[~common].sum()), np.append(expected[common], expected[~common].sum())
        assert stats.chisquare(*groups).pvalue > 0.001


def test_oracle_language_is_as_described() -> None:
    source, target = oracle_language("source"), oracle_language("target")
    assert source.emission_SV.shape == target.emission_SV.shape == (32, 513)
    assert source.emission_SV.min() == pytest.approx(1e-3 / 513)
    assert not np.array_equal(source.transition_SS, target.transition_SS)
    texts = target.sample(2_000, seed=1)
    symbols = sum(map(len, texts)) + len(texts)
    own, foreign = (math.exp(-language.log_prob(texts).sum() / symbols) for language in (target, source))
    assert own < 0.6 * foreign  # the shift is large, in perplexity


def test_corpora_are_fixed_by_the_version() -> None:
    texts = oracle_texts("target", "test")
    assert len(texts) == TEXT_COUNTS["target"]["test"]
    # Another digest is another corpus: raise the version, and every result starts anew.
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == "33bc0d4e33ef9702"


def test_tokenizer_ids_are_the_symbol_ids() -> None:
    tokenizer = oracle_tokenizer()
    words = oracle_words()
    assert len(set(words)) == 512
    assert len(tokenizer) == 513
    assert tokenizer.convert_tokens_to_ids([*words, language.EOS]) == list(range(513))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (512, 512, 512)
    sample = oracle_language("target").sample(20, seed=4)
    texts = [" ".join(words[i] for i in text) for text in sample]
    assert tokenizer(texts)["input_ids"] == sample
    assert [tokenizer.decode(ids) for ids in sample] == texts
    assert tokenizer(f"{words[0]} {language.EOS}")["input_ids"] == [0, 512]


def test_an_unknown_word_has_no_symbol() -> None:
    with pytest.raises(Exception, match="WordLevel"):
        oracle_tokenizer()("qqqq")


def test_bad_tables_and_texts_are_refused(small: HiddenMarkovLanguage) -> None:
    with pytest.raises(ConfigError, match="shape"):
        HiddenMarkovLanguage(small.start_S[:2], small.transition_SS, small.emission_SV)
    with pytest.raises(ConfigError, match="transition_SS"):
        HiddenMarkovLanguage(small.start_S, small.transition_SS * 1.1, small.emission_SV)
    with pytest.raises(ConfigError, match="floor"):
        HiddenMarkovLanguage(small.start_S, small.transition_SS, np.eye(3, 7))
    with pytest.raises(DataError, match="start with EOS"):
        small.state_probs(np.array([[0, 1]]))
    with pytest.raises(DataError, match="0 to 6"):
        small.log_prob([[7]])
    with pytest.raises(DataError, match="leave EOS out"):
        small.log_prob([[1, EOS]])
    with pytest.raises(UnknownNameError, match="did you mean 'target'"):
        oracle_language("tarket")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="version"):
        oracle_language("source", version=9)
    with pytest.raises(UnknownNameError, match="split"):
        oracle_texts("source", "dev")  # type: ignore[arg-type]


def test_importing_the_language_loads_neither_torch_nor_transformers() -> None:
    code = "import sys, emobench.data.oracle.language; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
