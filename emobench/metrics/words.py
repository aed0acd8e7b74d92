"""The units of repetition, distinct-n and self-BLEU: words between white space, so that tokenizers do not differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def words_of(text: str) -> list[str]:
    """Return the words of a text, upper and lower case as they stand, with the punctuation that sticks to them."""
    return text.split()


def ngrams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """Yield each n words that stand together, in order."""
    return zip(*(words[i:] for i in range(n)), strict=False)
