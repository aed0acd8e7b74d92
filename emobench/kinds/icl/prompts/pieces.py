"""A prompt taken apart for a reader: which part of it each token is of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from emobench.kinds.icl.prompts.prompts import TAIL, Draft
from emobench.kinds.icl.prompts.tokens import tokenize
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.views import Piece

LABEL, BOS = "label", "BOS"


def pieces(draft: Draft, rules: IclProtocol, tokenizer: Any, place: int) -> list[Piece]:
    """Return the prompt of one label, by its place in `ties`, token by token: the texts, but for BOS, joined.

    A token belongs to the part of its last character, so that one that reaches into the label is the label's. Of a
    character of several tokens the first has the text. Without offsets the pieces are the parts, and of no token.
    """
    named = [(name, text) for name, text in draft.parts(rules) if name != TAIL]
    whole, begin = draft.texts(rules)[place]
    named.append((LABEL, whole[begin:]))
    (ids,), offsets = tokenize([whole], tokenizer, rules)
    if offsets is None:
        return [Piece(part=name, text=text, token=None) for name, text in named if text]
    found, done = [], 0
    for token, (start, end) in zip(ids, offsets[0], strict=True):
        if start == end:
            found.append(Piece(part=BOS, text=tokenizer.convert_ids_to_tokens(token), token=token))
            continue
        if start > done:
            found.append(Piece(part=_part(named, start - 1), text=whole[done:start], token=None))
        found.append(Piece(part=_part(named, end - 1), text=whole[max(start, done) : end], token=token))
        done = max(done, end)
    if done < len(whole):
        found.append(Piece(part=LABEL, text=whole[done:], token=None))
    return found


def first_pieces(found: Sequence[Piece], tokens: int) -> list[Piece]:
    """Return the pieces of the first tokens; all where no piece is known to be a token's."""
    counts = itertools.accumulate(piece.token is not None for piece in found)
    return [piece for piece, count in zip(found, counts, strict=True) if count <= tokens]


def _part(named: list[tuple[str, str]], character: int) -> str:
    """Return the part that holds a character."""
    ends = itertools.accumulate(len(text) for _, text in named)
    return next(name for (name, _), end in zip(named, ends, strict=True) if character < end)
