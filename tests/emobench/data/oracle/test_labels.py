"""Labelled samples and label episodes of the oracle language."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest

from emobench.core.errors import UnknownNameError
from emobench.data.labelled import LabelledSource, LabelledSplit, load_labelled
from emobench.data.oracle.labels import SAMPLES, SECTION_NAMES, episode_texts, label_words, labelled_samples
from emobench.data.oracle.language import CLASSES, SECTIONS, oracle_language, oracle_texts, oracle_words
from emobench.data.texts import load_texts


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
