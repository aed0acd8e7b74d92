"""Words and n-grams of texts, and the scripts in which they can be counted.

Words are the text between white space (`str.split`), with their case and punctuation, so that tokenizers do not
differ.
rouge-score's tokenizer keeps a to z and 0 to 9 of lower-case text, so that a text in another script has no words at
all. Words between white space do not exist in scripts that are written without spaces. A text with more than half of
its letters in such a script has no score: 0 would say that two equal texts have nothing in common.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from emobench.core.errors import MetricError

MOST = 0.5
"""Largest share of letters of scripts that cannot be read."""
LATIN = frozenset({"LATIN", "COMBINING"})
"""Words in the Unicode names of Latin letters, with or without accents, and of accents that stand alone."""
UNSPACED = frozenset(
    {
        *("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO"),
        *("KHMER", "MYANMAR", "TIBETAN", "TAI", "JAVANESE", "BALINESE"),
    }
)
"""Words in the Unicode names of letters of scripts without spaces between words (mostly as in UAX 14, ID and SA)."""


def ngrams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """Yield each n words that stand together, in order."""
    return zip(*(words[i:] for i in range(n)), strict=False)


def require_spaces(runs: Sequence[Sequence[str]]) -> None:
    """Raise MetricError for runs whose letters are mostly of scripts without spaces between words."""
    if not all(map(has_spaces, runs)):
        raise MetricError(
            "Most letters of a sampling run are of a script without spaces between words, such as Chinese or Thai: "
            "its words, and their n-grams, cannot be counted."
        )


def is_latin(text: str) -> bool:
    """Return whether at least half of a text's letters, digits and combining marks are Latin.

    A text without any of these is Latin if it is ASCII (punctuation), and not otherwise (emoji).
    """
    if text.isascii():
        return True
    letters = others = 0
    for character in filter(_is_letter, text):
        letters += 1
        others += not (character.isascii() or _is_named(character, LATIN))
    return letters > 0 and others <= MOST * letters


def has_spaces(texts: Iterable[str]) -> bool:
    """Return whether at least half of the letters of some texts are of scripts with spaces between words."""
    letters = unspaced = 0
    for character, count in Counter("".join(texts)).items():
        if _is_letter(character):
            letters += count
            unspaced += count * _is_named(character, UNSPACED)
    return unspaced <= MOST * letters


def _is_letter(character: str) -> bool:
    """Return whether a character is a letter, a number, or a mark that combines with one."""
    return unicodedata.category(character)[0] in "LMN"


def _is_named(character: str, words: frozenset[str]) -> bool:
    """Return whether a character's Unicode name has one of these words."""
    name = unicodedata.name(character, "").replace("-", " ")
    return not words.isdisjoint(name.split())
