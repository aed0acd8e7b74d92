"""Prepare WebText and WritingPrompts as Zhang et al. (MixCE, ACL 2023) did, after their paper and scripts.

The EMO paper uses both corpora in "the official split provided by Zhang et al." (A.4). This follows their
`data/webtext_data.py` and `data/writingprompts_data.py` (bloomberg/MixCE-acl2023). The result is then cut to the sizes
of Table 4 (`emobench.data.sources`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

from emobench.data.sources import Split

ABOVE, BELOW = 50, 1000
"""Keep texts with more than ABOVE and fewer than BELOW words, split at white space."""
HELD_OUT = 5_000
"""Number of texts of WebText's validation and test split, and the largest number for WritingPrompts."""

Fields = tuple[str, ...]
Rows = Callable[[Split], Iterable[Fields]]
"""A split -> the fields of each row of the source."""


def webtext(split: Split, rows: Rows) -> Iterator[str]:
    """Yield the texts of a split of WebText: each on one line, with an allowed length.

    The first training texts fill the test split up to 5,000 texts, the next ones fill the validation split. The others
    are the training split.
    """
    if split == "train":
        taken = _lacking(rows, "test") + _lacking(rows, "validation")
        yield from islice(_webtexts(rows("train")), taken, None)
        return
    own = list(_webtexts(rows(split)))
    before = _lacking(rows, "test") if split == "validation" else 0
    yield from own
    yield from islice(_webtexts(rows("train")), before, before + max(HELD_OUT - len(own), 0))


def writingprompts(split: Split, rows: Rows) -> Iterator[str]:
    """Yield the texts of a split of WritingPrompts: prompt and story on one line, detokenized, with an allowed length.

    The validation and test splits have at most 5,000 texts and are not filled up.
    """
    texts = _of_allowed_length(detokenized(_story(*fields)) for fields in rows(split))
    yield from texts if split == "train" else islice(texts, HELD_OUT)


def detokenized(text: str) -> str:
    """Return an English text detokenized by sacremoses.

    A line that is blank or a single tag does not change, as in Moses's script.
    """
    return text if not text.strip() or re.fullmatch("<.+>", text) else _moses()(text.split(" ")).strip()


PREPARATIONS: dict[str, Callable[[Split, Rows], Iterator[str]]] = {"webtext": webtext, "writingprompts": writingprompts}


def _webtexts(rows: Iterable[Fields]) -> Iterator[str]:
    for text in _of_allowed_length(text.replace("\n", " ").strip() for (text,) in rows):
        # Their script writes the texts to a file and reads its lines: a carriage return also ends a line.
        yield from (part.strip() for part in re.split("\r\n?", text))


def _lacking(rows: Rows, split: Split) -> int:
    return max(HELD_OUT - sum(1 for _ in _webtexts(rows(split))), 0)


def _story(prompt: str, story: str) -> str:
    for mark, written in (("<newline>", " "), ("``", '"'), ("''", '"')):
        story = story.replace(mark, written)
    # Their source has one text per line; other copies may have line ends in place of <newline>.
    return re.sub("[\r\n]+", " ", f"{prompt.strip()} {story.strip()}")


def _of_allowed_length(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in texts if ABOVE < len(text.split()) < BELOW)


@cache
def _moses() -> Callable[[list[str]], Any]:
    from sacremoses import MosesDetokenizer

    return partial(MosesDetokenizer(lang="en").detokenize, return_str=True)
