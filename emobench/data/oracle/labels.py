"""Labelled samples of the oracle language, and label episodes from which a model learns to classify in context.

A sample is one to four words of one section of the source domain; the section is its class. An episode is a sequence of
samples of two sections, each followed by the label of its section. The labels are two of eight words and are drawn for
each episode, so only the context gives their meaning.

Legend: E episodes, K samples of an episode, N samples, C words of a sample, S states (word classes), V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from emobench.core.errors import UnknownNameError
from emobench.data.oracle.language import (
    CLASSES,
    SECTIONS,
    Floats,
    Ids,
    RowSampler,
    Split,
    oracle_language,
    oracle_texts,
    oracle_words,
)

SECTION_NAMES = ("first", "second", "third", "fourth")
SAMPLE_COUNTS = {"train": 800, "test": 500}
ROW_COUNTS = {"train": (4_000, 22_000), "validation": (40, 220)}
"""Numbers of episodes and of ordinary texts of each split. Seven of ten tokens are in episodes."""
SAMPLES = 64
"""Number of samples of an episode."""
LONGEST = 4
"""Largest number of words of a sample. One word determines its section in 86 % of cases, two in nearly all."""
LABELS = 8
SECTIONS_OF_EPISODE = 2
"""With two sections, a small model learns within minutes that labels depend on samples. With four it does not; what it
learns with two also works for four."""


@lru_cache
def label_words() -> tuple[str, ...]:
    """Return the eight rarest words of the source domain, the rarest first."""
    frequency_V = _word_probs(oracle_language("source").emission_SV).mean(0)
    return tuple(oracle_words()[i] for i in np.argsort(frequency_V)[:LABELS])


def labelled_samples(split: str, version: int = 1) -> list[tuple[str, str]]:
    """Return the samples of a split, each with its class. `SAMPLE_COUNTS` has their numbers."""
    if split not in SAMPLE_COUNTS:
        raise UnknownNameError("split", split, SAMPLE_COUNTS, where="oracle-sections: ")
    generator = _generator(version, 4, list(SAMPLE_COUNTS).index(split))
    sections_N = _draw(generator, SECTIONS, (SAMPLE_COUNTS[split],))
    samples = _samples(sections_N, version, generator)
    return [(text, SECTION_NAMES[section]) for text, section in zip(samples, sections_N, strict=True)]


@lru_cache
def episode_texts(split: Split, version: int = 1) -> tuple[str, ...]:
    """Return the rows of a split in random order: episodes, and texts of the source domain. Made once a process."""
    if split not in ROW_COUNTS:
        raise UnknownNameError("split", split, ROW_COUNTS, where="oracle-episodes: ")
    generator = _generator(version, 5, list(ROW_COUNTS).index(split))
    episodes, texts = ROW_COUNTS[split]
    rows = [*_episodes(episodes, version, generator), *oracle_texts("source", split, version)[:texts]]
    return tuple(rows[i] for i in np.argsort(generator.random(len(rows))))


def _episodes(count: int, version: int, generator: np.random.Generator) -> list[str]:
    sections_E2 = _different(generator, count, SECTIONS)
    labels_E2 = _different(generator, count, LABELS)
    choice_EK = _draw(generator, SECTIONS_OF_EPISODE, (count, SAMPLES))
    samples = _samples(np.take_along_axis(sections_E2, choice_EK, 1).ravel(), version, generator)
    words = label_words()
    labels = [words[i] for i in np.take_along_axis(labels_E2, choice_EK, 1).ravel()]
    pairs = [f"{text} {label}" for text, label in zip(samples, labels, strict=True)]
    return [" ".join(pairs[start : start + SAMPLES]) for start in range(0, len(pairs), SAMPLES)]


def _samples(sections_N: Ids, version: int, generator: np.random.Generator) -> list[str]:
    """Draw a sample of each section: words of a chain of its word classes, from a random start."""
    language = oracle_language("source", version)
    move, speak = RowSampler(_within(language.transition_SS)), RowSampler(_word_probs(language.emission_SV))
    lengths_N = 1 + _draw(generator, LONGEST, sections_N.shape)
    states_N = sections_N * CLASSES + _draw(generator, CLASSES, sections_N.shape)
    columns = []
    for _ in range(LONGEST):
        columns.append(speak(states_N, generator))
        states_N = move(states_N, generator)
    words = np.array(oracle_words(), dtype=object)
    return [" ".join(words[row[:length]]) for row, length in zip(np.stack(columns, 1), lengths_N, strict=True)]


def _within(transition_SS: Floats) -> Floats:
    """Return the transitions within sections, normalised."""
    section_S = np.arange(len(transition_SS)) // CLASSES
    inside_SS = transition_SS * (section_S == section_S[:, None])
    return inside_SS / inside_SS.sum(1, keepdims=True)


def _word_probs(emission_SV: Floats) -> Floats:
    """Return the emissions without EOS, normalised."""
    return emission_SV[:, :-1] / emission_SV[:, :-1].sum(1, keepdims=True)


def _generator(*seed: int) -> np.random.Generator:
    # Only uniform numbers: numpy does not guarantee the streams of its other distributions.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))


def _draw(generator: np.random.Generator, options: int, shape: Sequence[int]) -> Ids:
    """Draw integers below `options`, uniformly."""
    return (generator.random(shape) * options).astype(np.int64)


def _different(generator: np.random.Generator, rows: int, options: int) -> Ids:
    """Draw two different integers below `options` for each row: (rows, 2)."""
    return np.argsort(generator.random((rows, options)), axis=1)[:, :SECTIONS_OF_EPISODE]
