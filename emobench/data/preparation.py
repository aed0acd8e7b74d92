"""How Zhang et al. (MixCE, ACL 2023) prepared WebText and WritingPrompts, by their public description and scripts.

The EMO paper takes both corpora in "the official split provided by Zhang et al." (A.4). Written from what their
`data/webtext_data.py` and `data/writingprompts_data.py` do (bloomberg/MixCE-acl2023); Table 4's sizes are cut from the
result afterwards (`emobench.data.sources`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

from emobench.data.sources import Split

ABOVE, BELOW = 50, 1000
"""A text is kept that has more words than the one and fewer than the other, split at any white space."""
HELD_OUT = 5_000
"""Texts of WebText's validation and test split, and the most of those of WritingPrompts."""

Fields = tuple[str, ...]
Rows = Callable[[Split], Iterable[Fields]]
"""A split -> the fields of each of its rows, as the source has them."""


def webtext(split: Split, rows: Rows) -> Iterator[str]:
    """Yield the texts of a split of WebText: on one line, of the admitted lengths.

    What the test split lacks of 5,000 texts is filled up from the beginning of the training split, then what the
    validation split lacks; the training split is the rest.
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
    """Yield the texts of a split of WritingPrompts: prompt and story on one line, detokenized, of the admitted lengths.

    The validation and test splits are cut to 5,000 texts, and nothing is filled up.
    """
    texts = _admitted(detokenized(_story(*fields)) for fields in rows(split))
    yield from texts if split == "train" else islice(texts, HELD_OUT)


def detokenized(text: str) -> str:
    """Return an English text as Moses's detokenizer joins its words, by sacremoses.

    A line that is blank, or one tag from end to end, stays as it is, as in Moses's script.
    """
    return text if not text.strip() or re.fullmatch("<.+>", text) else _moses()(text.split(" ")).strip()


PREPARATIONS: dict[str, Callable[[Split, Rows], Iterator[str]]] = {
    "webtext": webtext,
    "writingprompts": writingprompts,
}


def _webtexts(rows: Iterable[Fields]) -> Iterator[str]:
    for text in _admitted(text.replace("\n", " ").strip() for (text,) in rows):
        # They write the texts to a file and read its lines again, where a carriage return ends a line, too.
        yield from (part.strip() for part in re.split("\r\n?", text))


def _lacking(rows: Rows, split: Split) -> int:
    return max(HELD_OUT - sum(1 for _ in _webtexts(rows(split))), 0)


def _story(prompt: str, story: str) -> str:
    for mark, written in (("<newline>", " "), ("``", '"'), ("''", '"')):
        story = story.replace(mark, written)
    # Their source has a text on each line; another copy may have line ends where it says <newline>.
    return re.sub("[\r\n]+", " ", f"{prompt.strip()} {story.strip()}")


def _admitted(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in texts if ABOVE < len(text.split()) < BELOW)


@cache
def _moses() -> Callable[[list[str]], Any]:
    from sacremoses import MosesDetokenizer

    return partial(MosesDetokenizer(lang="en").detokenize, return_str=True)
