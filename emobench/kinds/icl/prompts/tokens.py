"""Texts to tokens with exactly the BOS that a protocol asks for, and none behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.errors import ModelError
from emobench.kinds.icl.rules import IclProtocol


def tokenize(
    texts: Sequence[str], tokenizer: Any, rules: IclProtocol
) -> tuple[list[tuple[int, ...]], list[list[tuple[int, int]]] | None]:
    """Return each text's tokens, with the BOS that the protocol asks for, and the characters of each token.

    A token that stands for no text has the characters (0, 0); a tokenizer without a fast form tells of none.
    """
    fast = bool(getattr(tokenizer, "is_fast", False))
    # Not verbose: prompts that are too long for the model lose shots afterwards.
    encoded = tokenizer(
        list(texts),
        add_special_tokens=rules.bos == "tokenizer",
        truncation=False,
        return_attention_mask=False,
        return_offsets_mapping=fast,
        verbose=False,
    )
    bos = _bos(tokenizer, rules)
    rows = [(*bos, *ids) for ids in encoded["input_ids"]]
    for row in rows:
        _check_ends(row, tokenizer, rules)
    return rows, [[(0, 0)] * len(bos) + list(row) for row in encoded["offset_mapping"]] if fast else None


def first_after(offsets: Sequence[tuple[int, int]], at: int) -> int:
    """Return the first token that holds a character at or behind a place."""
    return next((i for i, (_, end) in enumerate(offsets) if end > at), len(offsets))


def _bos(tokenizer: Any, rules: IclProtocol) -> tuple[int, ...]:
    if rules.bos != "one":
        return ()
    if tokenizer.bos_token_id is None:
        raise ModelError(
            f"The protocol asks for one BOS, but the tokenizer {type(tokenizer).__name__} has no BOS token; use --set "
            "icl.bos=tokenizer, or give the tokenizer a bos_token."
        )
    return (tokenizer.bos_token_id,)


def _check_ends(ids: Sequence[int], tokenizer: Any, rules: IclProtocol) -> None:
    """Refuse a doubled BOS, and an EOS that the tokenizer puts behind the prompt."""
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    count = next((i for i, token in enumerate(ids) if token != bos), len(ids)) if bos is not None else 0
    allowed = {"none": (0,), "one": (1,), "tokenizer": (0, 1)}[rules.bos]
    if count not in allowed:
        raise ModelError(
            f"A prompt begins with {count} BOS tokens where the protocol asks for bos={rules.bos}: the tokenizer adds "
            "its own, or the text begins with the token's name. Use --set icl.bos=tokenizer, or mend the tokenizer."
        )
    if len(ids) > 1 and eos is not None and ids[-1] == eos:
        raise ModelError(
            "The tokenizer puts an EOS token behind the prompt, which would be scored with the label; turn it off "
            "(`add_eos_token`), or use --set icl.bos=none."
        )
