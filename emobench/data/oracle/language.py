"""The oracle language: a synthetic language whose distribution P is known exactly.

A hidden Markov model over word classes emits words and finally the end-of-text symbol. The forward algorithm computes
P(. | prefix) exactly, so a trained model Q can be compared with the true distribution.

Legend: B texts, T positions, S states (word classes), V symbols (all words, then EOS: EOS is V - 1).

A text is w_1 ... w_n and then EOS; a model's input is EOS, w_1, ..., w_n and its targets are w_1, ..., w_n, EOS.
Samples have exactly the distribution P: no text is rejected, shortened or drawn again. The uniform floor gives the
empty text a probability of about 2e-6 in `oracle_language`; the corpora of `oracle_texts` (fixed seeds) have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.data.bpe import fast_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Domain = Literal["source", "target"]
Split = Literal["train", "validation", "test"]
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

EOS = "<eos>"
WORD_COUNT = 512
VERSIONS = (1,)
TEXT_COUNTS: dict[Domain, dict[Split, int]] = {
    "source": {"train": 60_000, "validation": 500, "test": 1_000},
    "target": {"train": 2_600, "validation": 500, "test": 1_000},
}


@dataclass(frozen=True, eq=False)
class HiddenMarkovLanguage:
    """A distribution P over texts. A state is drawn, emits a symbol and moves to the next state, until EOS.

    start_S, transition_SS (rows: from) and emission_SV are probabilities. Every emission must be positive:
    log P is then finite for every text. Raises ConfigError for a wrong table.
    """

    start_S: Floats
    transition_SS: Floats
    emission_SV: Floats

    def __post_init__(self) -> None:
        states = len(self.start_S)
        shapes = (self.start_S.shape, self.transition_SS.shape, self.emission_SV.shape[:1])
        if shapes != ((states,), (states, states), (states,)) or self.emission_SV.ndim != 2:
            given = ", ".join(str(table.shape) for table in (self.start_S, self.transition_SS, self.emission_SV))
            raise ConfigError(f"a language needs tables of shape (S,), (S, S) and (S, V), got {given}.")
        for name in ("start_S", "transition_SS", "emission_SV"):
            table = getattr(self, name)
            if not np.allclose(table.sum(-1), 1, rtol=0, atol=1e-9) or table.min() < 0:
                raise ConfigError(f"the rows of {name} must be probabilities that sum to 1.")
        if self.emission_SV.min() <= 0:
            raise ConfigError("emission_SV must be positive everywhere; mix in a small uniform floor.")

    @property
    def eos_id(self) -> int:
        return self.emission_SV.shape[1] - 1

    def sample(self, count: int, seed: int | Sequence[int]) -> list[list[int]]:
        """Draw `count` independent texts from P: their word ids, without EOS (an empty text is an empty list)."""
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
        transition, emission = RowSampler(self.transition_SS), RowSampler(self.emission_SV)
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
        ids_BT = self._checked(ids_BT)
        if (ids_BT[:, :1] != self.eos_id).any():
            raise DataError(f"every input must start with EOS ({self.eos_id}), the start symbol.")
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
        inside_BT = np.arange(ids_BT.shape[1]) < (lengths_B - ends_B)[:, None]
        if (self._checked(ids_BT)[inside_BT] == self.eos_id).any():
            raise DataError("a text holds its words only; leave EOS out, and say with `ended` whether it came.")
        probs_BS, total_B = np.broadcast_to(self.start_S, (len(texts), len(self.start_S))), np.zeros(len(texts))
        for t in range(ids_BT.shape[1]):
            probs_BS, log_prob_B = self._read(probs_BS, ids_BT[:, t])
            total_B += np.where(t < lengths_B, log_prob_B, 0.0)
        return total_B

    def _read(self, probs_BS: Floats, ids_B: Ids) -> tuple[Floats, Floats]:
        """Read one symbol: the next state's probabilities (B, S), and the symbol's log probability (B,)."""
        joint_BS = probs_BS * self.emission_SV.T[ids_B]
        symbol_B = joint_BS.sum(-1)
        return (joint_BS / symbol_B[:, None]) @ self.transition_SS, np.log(symbol_B)

    def _checked(self, ids_BT: Ids) -> Ids:
        if ids_BT.size and not (ids_BT.min() >= 0 and ids_BT.max() <= self.eos_id):
            raise DataError(f"symbols are 0 to {self.eos_id}, got {ids_BT.min()} to {ids_BT.max()}.")
        return ids_BT


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
def oracle_language(domain: Domain, version: int = 1) -> HiddenMarkovLanguage:
    """Return the language of a domain. Its tables are drawn from the suite's version.

    A text has four sections of eight word classes each (mean length 17 words; one text in 70,000 is over 63 words).
    Each class prefers its own words, with Zipfian frequencies. The target domain has the same words in the same
    classes, with other frequencies and other class transitions. There are 513 symbols: 512 words, then EOS.
    """
    if domain not in TEXT_COUNTS:
        raise UnknownNameError("oracle domain", str(domain), TEXT_COUNTS)
    if version not in VERSIONS:
        raise UnknownNameError("oracle language version", str(version), map(str, VERSIONS))
    # Only uniform numbers: numpy does not guarantee the streams of its other distributions.
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([version, 1])))
    shape_SS = (SECTIONS * CLASSES, SECTIONS * CLASSES)
    affinity_SV = _affinity(generator.random((SECTIONS * CLASSES, WORD_COUNT)))
    rank_V = np.argsort(generator.random(WORD_COUNT)) + 1.0
    mix_SS = _sparse(generator.random(shape_SS))
    if domain == "target":
        rank_V = np.argsort(np.argsort(np.log(rank_V) + 2 * generator.random(WORD_COUNT))) + 1.0
        mix_SS = 0.5 * (mix_SS + _sparse(generator.random(shape_SS)))
    language = HiddenMarkovLanguage(_start(), _transition(mix_SS), _emission(affinity_SV / rank_V))
    for table in (language.start_S, language.transition_SS, language.emission_SV):
        table.setflags(write=False)  # the languages are shared
    return language


def _affinity(uniform_SV: Floats) -> Floats:
    """Each word belongs to one class; about one class in twenty also uses it."""
    home_SV = np.arange(uniform_SV.shape[0])[:, None] == np.arange(uniform_SV.shape[1]) % uniform_SV.shape[0]
    return np.where(home_SV, 1.0, np.where(uniform_SV < 0.05, 0.1, 0.0))


def _start() -> Floats:
    return np.repeat([1.0 / CLASSES, 0.0], [CLASSES, (SECTIONS - 1) * CLASSES])


def _transition(mix_SS: Floats) -> Floats:
    """Stay in the section, or move to the next. Only EOS ends the last section."""
    section_S = np.arange(len(mix_SS)) // CLASSES
    step_SS = section_S - section_S[:, None]
    stay_SS, next_SS = _rows(mix_SS * (step_SS == 0)), _rows(mix_SS * (step_SS == 1))
    move_S = np.where(section_S == SECTIONS - 1, 0.0, MOVE_ON)[:, None]
    return (1 - move_S) * stay_SS + move_S * next_SS


def _emission(weight_SW: Floats) -> Floats:
    """Words by weight, EOS in the last section, mixed with the uniform floor."""
    end_S = np.where(np.arange(len(weight_SW)) // CLASSES == SECTIONS - 1, MOVE_ON, 0.0)[:, None]
    symbols_SV = np.concatenate([(1 - end_S) * _rows(weight_SW), end_S], axis=1)
    return (1 - FLOOR) * symbols_SV + FLOOR / symbols_SV.shape[1]


def _sparse(uniform_SS: Floats) -> Floats:
    """Weights with a few large values: two or three classes are likely after each class."""
    return (-np.log(uniform_SS)) ** 4


def _rows(weight_RC: Floats) -> Floats:
    """Scale each row to sum to 1. A row of zeros does not change."""
    sums_R = weight_RC.sum(1, keepdims=True)
    return weight_RC / np.where(sums_R > 0, sums_R, 1.0)


@lru_cache
def oracle_texts(domain: Domain, split: Split, version: int = 1) -> tuple[str, ...]:
    """Return the texts of a split, words joined by a space. `TEXT_COUNTS` has their numbers.

    They are made once a process: 65,600 texts in all, 9 MB.
    """
    language = oracle_language(domain, version)
    if split not in TEXT_COUNTS[domain]:
        raise UnknownNameError("split", str(split), TEXT_COUNTS[domain], where=f"oracle-{domain}: ")
    seed = [version, 2 + list(TEXT_COUNTS).index(domain), 1 + list(TEXT_COUNTS[domain]).index(split)]
    words = np.array(oracle_words(), dtype=object)
    return tuple(" ".join(words[text]) for text in language.sample(TEXT_COUNTS[domain][split], seed))


def oracle_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one symbol id per word. EOS is also BOS and padding, so there are 513 symbols.

    Encoding an unknown word raises an error. No symbol is added around a text.
    """
    ids = {symbol: i for i, symbol in enumerate([*oracle_words(), EOS])}
    tokenizer = Tokenizer(models.WordLevel(ids))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return fast_tokenizer(tokenizer, EOS)
