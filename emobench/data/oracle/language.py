"""The oracle language: a synthetic language whose distribution P is known exactly.

A hidden Markov model over word classes emits words and finally the end-of-text symbol. The forward algorithm computes
P(. | prefix) exactly, so a trained model Q can be compared with the true distribution.

Legend: B texts, T positions, S states (word classes), V symbols (all words, then EOS: EOS is V - 1).

A text is w_1 ... w_n and then EOS; a model's input is EOS, w_1, ..., w_n and its targets are w_1, ..., w_n, EOS.
Samples have exactly the distribution P: no text is rejected, shortened or drawn again. The uniform floor gives the
empty text a probability of about 2e-6 in `oracle_language`; the corpora of `oracle_texts` (fixed seeds) have none.

Labelled samples of the oracle language, and label episodes from which a model learns to classify in context.

A sample is one to four words of one section of the source domain; the section is its class. An episode is a sequence of
samples of two sections, each followed by the label of its section. The labels are two of eight words and are drawn for
each episode, so only the context gives their meaning.

Legend: E episodes, K samples of an episode, N samples, C words of a sample, S states (word classes), V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from emobench.core.errors import UnknownNameError
from emobench.data.bpe import fast_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Domain = Literal["source", "target"]
Split = Literal["train", "validation", "test"]
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

EOS = "<eos>"
WORD_COUNT = 512
VERSION = 1
"""It seeds all tables and texts: another version is another language."""
TEXT_COUNTS: dict[Domain, dict[Split, int]] = {
    "source": {"train": 60_000, "validation": 500, "test": 1_000},
    "target": {"train": 2_600, "validation": 500, "test": 1_000},
}
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


@dataclass(frozen=True, eq=False)
class HiddenMarkovLanguage:
    """A distribution P over texts. A state is drawn, emits a symbol and moves to the next state, until EOS.

    start_S, transition_SS (rows: from) and emission_SV are probabilities. Every emission must be positive:
    log P is then finite for every text.
    """

    start_S: Floats
    transition_SS: Floats
    emission_SV: Floats

    @property
    def eos_id(self) -> int:
        return self.emission_SV.shape[1] - 1

    def sample(self, count: int, seed: int | Sequence[int]) -> list[list[int]]:
        """Draw `count` independent texts from P: their word ids, without EOS (an empty text is an empty list)."""
        generator = uniform_generator(seed)
        transition = RowSampler(self.transition_SS)
        emission = RowSampler(self.emission_SV)
        rows = np.arange(count)  # texts that have not ended
        states = RowSampler(self.start_S[None])(np.zeros(count, int), generator)
        columns = [(rows[:0], rows[:0])]
        while len(rows):
            symbols = emission(states, generator)
            running = symbols != self.eos_id
            rows, states, symbols = rows[running], states[running], symbols[running]
            columns.append((rows, symbols))
            states = transition(states, generator)
        owners = np.concatenate([rows for rows, _ in columns])
        words = np.concatenate([symbols for _, symbols in columns])[np.argsort(owners, kind="stable")]
        ends = np.cumsum(np.bincount(owners, minlength=count))
        return [part.tolist() for part in np.split(words, ends[:-1])] if count else []

    def state_probs(self, ids_BT: Ids) -> Floats:
        """Return P(state that emits the next symbol | prefix), shape (B, T, S), for inputs that start with EOS.

        Position t has read ids[:, 1 : t + 1]. `state_probs(ids) @ emission_SV` is P(. | prefix), (B, T, V); to save
        memory, multiply only some positions. The result aligns with a model's logits. Values after the end of a text
        (right padding with EOS) are finite but have no meaning.
        """
        probs_BTS = np.empty((*ids_BT.shape, len(self.start_S)))
        probs_BTS[:, 0] = self.start_S
        for t in range(1, ids_BT.shape[1]):
            probs_BTS[:, t] = self._read(probs_BTS[:, t - 1], ids_BT[:, t])[0]
        return probs_BTS

    def log_prob(self, texts: Sequence[Sequence[int]], ended: Sequence[bool] | None = None) -> Floats:
        """Return each text's log probability in nats, including EOS, shape (B,).

        Where `ended` is false, EOS is not included: this is the probability that a text begins with these words.
        """
        ends_B = np.ones(len(texts), int) if ended is None else np.asarray(ended, int)
        lengths_B = np.array([len(text) for text in texts], int) + ends_B
        ids_BT = np.full((len(texts), lengths_B.max(initial=0)), self.eos_id)
        for row, text in zip(ids_BT, texts, strict=True):
            row[: len(text)] = text
        probs_BS = np.broadcast_to(self.start_S, (len(texts), len(self.start_S)))
        total_B = np.zeros(len(texts))
        for t in range(ids_BT.shape[1]):
            probs_BS, log_prob_B = self._read(probs_BS, ids_BT[:, t])
            total_B += np.where(t < lengths_B, log_prob_B, 0.0)
        return total_B

    def _read(self, probs_BS: Floats, ids_B: Ids) -> tuple[Floats, Floats]:
        """Read one symbol: the next state's probabilities (B, S), and the symbol's log probability (B,)."""
        joint_BS = probs_BS * self.emission_SV.T[ids_B]
        symbol_B = joint_BS.sum(-1)
        return (joint_BS / symbol_B[:, None]) @ self.transition_SS, np.log(symbol_B)


class RowSampler:
    """Draws from row r of a table of probabilities, for many r at once.

    The cumulative sums of row r are in (r, r + 1], so one search works for all rows.
    """

    def __init__(self, table_RC: Floats) -> None:
        sums_RC = np.cumsum(table_RC, axis=1)
        sums_RC[:, -1] = 1.0
        self.sums = (sums_RC + np.arange(len(table_RC))[:, None]).ravel()
        self.width = table_RC.shape[1]

    def __call__(self, rows_N: Ids, generator: np.random.Generator) -> Ids:
        index_N = np.searchsorted(self.sums, rows_N + generator.random(len(rows_N)), side="right")
        return np.minimum(index_N - rows_N * self.width, self.width - 1)


def oracle_words() -> list[str]:
    """Return the 512 words, distinct and pronounceable. The index of a word is its symbol id."""
    syllables = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeio"]
    codes = [(1_597 * i) % 4_096 for i in range(WORD_COUNT)]  # the factor is odd, so all codes are different
    return [syllables[code // 64] + syllables[code % 64] for code in codes]


SECTIONS, CLASSES = 4, 8  # states = sections x classes
MOVE_ON = 0.24  # probability to leave a section; in the last section, to end the text
FLOOR = 1e-3  # weight of the uniform distribution in every emission


@lru_cache
def oracle_language(domain: Domain) -> HiddenMarkovLanguage:
    """Return the language of a domain. Its tables are drawn from the suite's version.

    A text has four sections of eight word classes each (mean length 17 words; one text in 70,000 is over 63 words).
    Each class prefers its own words, with Zipfian frequencies. The target domain has the same words in the same
    classes, with other frequencies and other class transitions. There are 513 symbols: 512 words, then EOS.
    """
    generator = uniform_generator((VERSION, 1))
    states = SECTIONS * CLASSES
    # Each word belongs to one class; about one class in twenty also uses it.
    home_SV = np.arange(states)[:, None] == np.arange(WORD_COUNT) % states
    also_SV = np.where(generator.random((states, WORD_COUNT)) < 0.05, 0.1, 0.0)
    rank_V = np.argsort(generator.random(WORD_COUNT)) + 1.0
    mix_SS = _sparse(generator.random((states, states)))
    if domain == "target":
        rank_V = np.argsort(np.argsort(np.log(rank_V) + 2 * generator.random(WORD_COUNT))) + 1.0
        mix_SS = 0.5 * (mix_SS + _sparse(generator.random((states, states))))
    section_S = np.arange(states) // CLASSES
    is_last_S1 = (section_S == SECTIONS - 1)[:, None]
    # Stay in the section, or move to the next. Only EOS ends the last section.
    step_SS = section_S - section_S[:, None]
    move_S1 = np.where(is_last_S1, 0.0, MOVE_ON)
    transition_SS = (1 - move_S1) * _rows(mix_SS * (step_SS == 0)) + move_S1 * _rows(mix_SS * (step_SS == 1))
    # Words by weight, EOS in the last section, mixed with the uniform floor.
    end_S1 = np.where(is_last_S1, MOVE_ON, 0.0)
    words_SW = _rows(np.where(home_SV, 1.0, also_SV) / rank_V)
    symbols_SV = np.concatenate([(1 - end_S1) * words_SW, end_S1], axis=1)
    emission_SV = (1 - FLOOR) * symbols_SV + FLOOR / symbols_SV.shape[1]
    start_S = np.repeat([1.0 / CLASSES, 0.0], [CLASSES, (SECTIONS - 1) * CLASSES])
    for table in (start_S, transition_SS, emission_SV):
        table.setflags(write=False)  # the languages are shared
    return HiddenMarkovLanguage(start_S, transition_SS, emission_SV)


def uniform_generator(seed: int | Sequence[int]) -> np.random.Generator:
    """Return a generator of uniform numbers: numpy does not guarantee the streams of its other distributions."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))


def _sparse(uniform_SS: Floats) -> Floats:
    """Weights with a few large values: two or three classes are likely after each class."""
    return (-np.log(uniform_SS)) ** 4


def _rows(weight_RC: Floats) -> Floats:
    """Scale each row to sum to 1. A row of zeros does not change."""
    sums_R = weight_RC.sum(1, keepdims=True)
    return weight_RC / np.where(sums_R > 0, sums_R, 1.0)


@lru_cache
def oracle_texts(domain: Domain, split: Split) -> tuple[str, ...]:
    """Return the texts of a split, words joined by a space. `TEXT_COUNTS` has their numbers.

    They are made once a process: 65,600 texts in all, 9 MB.
    """
    counts = TEXT_COUNTS[domain]
    seed = [VERSION, 2 + list(TEXT_COUNTS).index(domain), 1 + list(counts).index(split)]
    words = np.array(oracle_words(), dtype=object)
    return tuple(" ".join(words[text]) for text in oracle_language(domain).sample(counts[split], seed))


def oracle_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one symbol id per word. EOS is also BOS and padding, so there are 513 symbols.

    Encoding an unknown word raises an error. No symbol is added around a text.
    """
    ids = {symbol: i for i, symbol in enumerate([*oracle_words(), EOS])}
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(ids))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return fast_tokenizer(tokenizer, EOS)


@lru_cache
def label_words() -> tuple[str, ...]:
    """Return the eight rarest words of the source domain, the rarest first."""
    frequency_V = _word_probs(oracle_language("source").emission_SV).mean(0)
    return tuple(oracle_words()[i] for i in np.argsort(frequency_V)[:LABELS])


def labelled_samples(split: str) -> list[tuple[str, str]]:
    """Return the samples of a split, each with its class. `SAMPLE_COUNTS` has their numbers."""
    if split not in SAMPLE_COUNTS:
        raise UnknownNameError("split", split, SAMPLE_COUNTS, where="oracle-sections: ")
    generator = uniform_generator((VERSION, 4, list(SAMPLE_COUNTS).index(split)))
    sections_N = _draw(generator, SECTIONS, (SAMPLE_COUNTS[split],))
    samples = _samples(sections_N, generator)
    return [(text, SECTION_NAMES[section]) for text, section in zip(samples, sections_N, strict=True)]


@lru_cache
def episode_texts(split: Split) -> tuple[str, ...]:
    """Return the rows of a split in random order: episodes, and texts of the source domain. Made once a process."""
    if split not in ROW_COUNTS:
        raise UnknownNameError("split", split, ROW_COUNTS, where="oracle-episodes: ")
    generator = uniform_generator((VERSION, 5, list(ROW_COUNTS).index(split)))
    episodes, texts = ROW_COUNTS[split]
    rows = [*_episodes(episodes, generator), *oracle_texts("source", split)[:texts]]
    return tuple(rows[i] for i in np.argsort(generator.random(len(rows))))


def _episodes(count: int, generator: np.random.Generator) -> list[str]:
    sections_E2 = _different(generator, count, SECTIONS)
    labels_E2 = _different(generator, count, LABELS)
    choice_EK = _draw(generator, SECTIONS_OF_EPISODE, (count, SAMPLES))
    samples = _samples(np.take_along_axis(sections_E2, choice_EK, 1).ravel(), generator)
    words = label_words()
    episodes: list[list[str]] = [[] for _ in range(count)]
    for place, label in enumerate(np.take_along_axis(labels_E2, choice_EK, 1).ravel()):
        episodes[place // SAMPLES] += (samples[place], words[label])
    return list(map(" ".join, episodes))


def _samples(sections_N: Ids, generator: np.random.Generator) -> list[str]:
    """Draw a sample of each section: words of a chain of its word classes, from a random start."""
    language = oracle_language("source")
    section_S = np.arange(len(language.start_S)) // CLASSES
    within_SS = language.transition_SS * (section_S == section_S[:, None])
    move = RowSampler(within_SS / within_SS.sum(1, keepdims=True))
    speak = RowSampler(_word_probs(language.emission_SV))
    lengths_N = 1 + _draw(generator, LONGEST, sections_N.shape)
    states_N = sections_N * CLASSES + _draw(generator, CLASSES, sections_N.shape)
    columns = []
    for _ in range(LONGEST):
        columns.append(speak(states_N, generator))
        states_N = move(states_N, generator)
    words = np.array(oracle_words(), dtype=object)
    return [" ".join(words[row[:length]]) for row, length in zip(np.stack(columns, 1), lengths_N, strict=True)]


def _word_probs(emission_SV: Floats) -> Floats:
    """Return the emissions without EOS, normalised."""
    return emission_SV[:, :-1] / emission_SV[:, :-1].sum(1, keepdims=True)


def _draw(generator: np.random.Generator, options: int, shape: Sequence[int]) -> Ids:
    """Draw integers below `options`, uniformly."""
    return (generator.random(shape) * options).astype(np.int64)


def _different(generator: np.random.Generator, rows: int, options: int) -> Ids:
    """Draw two different integers below `options` for each row: (rows, 2)."""
    return np.argsort(generator.random((rows, options)), axis=1)[:, :SECTIONS_OF_EPISODE]
