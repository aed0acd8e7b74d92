"""The oracle language against brute force: every path of hidden states, every short text."""

from __future__ import annotations

import hashlib
import itertools
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from emobench.core.errors import UnknownNameError
from emobench.data.labelled import LabelledSource, LabelledSplit, load_labelled
from emobench.data.oracle.language import (
    CLASSES,
    SAMPLES,
    SECTION_NAMES,
    SECTIONS,
    TEXT_COUNTS,
    Domain,
    HiddenMarkovLanguage,
    episode_texts,
    label_words,
    labelled_samples,
    oracle_language,
    oracle_texts,
    oracle_tokenizer,
    oracle_words,
)
from emobench.data.oracle.language import EOS as oracle_eos
from emobench.data.texts import load_texts

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
    assert tokenizer.convert_tokens_to_ids([*words, oracle_eos]) == list(range(513))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (512, 512, 512)
    sample = oracle_language("target").sample(20, seed=4)
    texts = [" ".join(words[i] for i in text) for text in sample]
    assert tokenizer(texts)["input_ids"] == sample
    assert [tokenizer.decode(ids) for ids in sample] == texts
    assert tokenizer(f"{words[0]} {oracle_eos}")["input_ids"] == [0, 512]


def test_an_unknown_word_has_no_symbol() -> None:
    with pytest.raises(Exception, match="WordLevel"):
        oracle_tokenizer()("qqqq")


def section_log_probs(text: str) -> np.ndarray:
    """log P(text | section) by the forward algorithm over a section's eight classes, shape (4,)."""
    language = oracle_language("source")
    ids = [oracle_words().index(word) for word in text.split()]
    words_SV = language.emission_SV[:, :-1] / language.emission_SV[:, :-1].sum(1, keepdims=True)
    found = []
    for section in range(SECTIONS):
        own = slice(section * CLASSES, (section + 1) * CLASSES)
        move_SS = language.transition_SS[own, own] / language.transition_SS[own, own].sum(1, keepdims=True)
        joint_S = np.full(CLASSES, 1 / CLASSES) * words_SV[own, ids[0]]
        for symbol in ids[1:]:
            joint_S = (joint_S @ move_SS) * words_SV[own, symbol]
        found.append(np.log(joint_S.sum()))
    return np.array(found)


def test_samples_are_of_their_section() -> None:
    samples = labelled_samples("test")
    assert len(samples) == 500
    assert {len(text.split()) for text, _ in samples} == {1, 2, 3, 4}
    log_probs_N4 = np.stack([section_log_probs(text) for text, _ in samples])
    truth_N = np.array([SECTION_NAMES.index(name) for _, name in samples])
    best = float((log_probs_N4.argmax(1) == truth_N).mean())
    # What the best possible reader gets right, by its own posterior: four standard errors either side.
    posterior_N = np.exp(log_probs_N4.max(1) - np.logaddexp.reduce(log_probs_N4, axis=1))
    error = float(np.sqrt((posterior_N * (1 - posterior_N)).sum()) / len(samples))
    assert abs(best - posterior_N.mean()) < 4 * error
    assert 0.9 < best < 0.98


def test_an_episode_gives_two_sections_a_word_each() -> None:
    rows = [row.split() for row in episode_texts("validation")]
    episodes = [row for row in rows if len(row) > 2 * SAMPLES]
    assert len(episodes) == 40
    assert Counter(" ".join(row) for row in rows if row not in episodes) == Counter(
        oracle_texts("source", "validation")[:220]
    )
    places = Counter[int]()
    for words in episodes:
        labels = [word for word in words if word in label_words()]
        common = [word for word, _ in Counter(labels).most_common(2)]
        votes: dict[str, Counter[int]] = {word: Counter() for word in common}
        sample: list[str] = []
        for word in words:
            if word in common and sample:
                votes[word][int(section_log_probs(" ".join(sample)).argmax())] += 1
                sample = []
            else:
                sample.append(word)
        sections = [votes[word].most_common(1)[0] for word in common]
        assert sections[0][0] != sections[1][0]
        assert all(count > 0.8 * votes[word].total() for word, (_, count) in zip(common, sections, strict=True))
        places.update(label_words().index(word) for word in common)
    assert set(places) == set(range(8))  # every label word serves, in 40 episodes of two


def test_the_data_is_fixed() -> None:
    """Results of years refer to these; the digests are those of the first version."""
    made = {
        "labels": " ".join(label_words()),
        "train": "\n".join(f"{text}\t{name}" for text, name in labelled_samples("train")),
        "test": "\n".join(f"{text}\t{name}" for text, name in labelled_samples("test")),
        "episodes": "\n".join(episode_texts("validation")),
    }
    digests = {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in made.items()}
    assert digests == {
        "labels": "59b43afa5a27",
        "train": "025ee2b30014",
        "test": "498c52806ec1",
        "episodes": "84e6e7dd84b8",
    }


def test_it_is_read_like_any_other_data() -> None:
    source = LabelledSource(
        name="oracle-sections",
        classes=SECTION_NAMES,
        pool=LabelledSplit(split="train"),
        test=LabelledSplit(split="test"),
    )
    data = load_labelled(source, data_dirs=(), offline=True)
    assert [(example.fields["text"], example.label) for example in data.test] == labelled_samples("test")
    assert len(data.pool) == 800
    texts = load_texts("oracle-episodes", "validation", data_dirs=(), offline=True)
    assert texts.texts == episode_texts("validation")
    assert texts.origin == "generated: oracle-episodes, version 1"


def test_unknown_splits_are_named() -> None:
    with pytest.raises(UnknownNameError, match=r"oracle-sections: .*'validation'"):
        labelled_samples("validation")
    with pytest.raises(UnknownNameError, match=r"oracle-episodes: .*'test'"):
        episode_texts("test")
