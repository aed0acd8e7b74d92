"""From test texts to prompts: which texts are used, what the model is given, what its text is compared with.

The paper counts tokens of the evaluated model, the official code counts words; a protocol says which, as data:

    PromptRule(unit="tokens", prefix=20, continuation=80)                      every text of at least 100 tokens
    PromptRule(unit="words", prefix=20, continuation=80, margin=10,            the official evaluation code
               min_characters=100, without=("==",), joiner=" ")
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from emobench.errors import DataError, ModelError
from emobench.tasks.generation import PromptRule

TEXTS_A_TIME = 256


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prefix and the human text that begins with it."""

    id: str  # first 12 hex of sha256 of the whole text, then its index: "9f86d081884c-17"
    text: str
    prefix_ids: tuple[int, ...]  # what the model is given, with BOS if the rule says so
    prefix_text: str
    reference_text: str  # prefix and the human continuation


def select_prompts(texts: Sequence[str], tokenizer: Any, rule: PromptRule, limit: int | None = None) -> list[Prompt]:
    """Return a prompt for each text that the rule admits, in order, the first `limit` of them.

    Raises DataError if no text is long enough, ModelError if the tokenizer cannot keep the rule's BOS.
    """
    bos = _bos_ids(tokenizer, rule)
    prompts: list[Prompt] = []
    longest = 0
    for index, text, ids in _encoded(texts, tokenizer, rule):
        length = len(ids) if rule.unit == "tokens" else len(text.split(" "))
        longest = max(longest, length)
        if length < rule.shortest or len(text) < rule.min_characters or any(part in text for part in rule.without):
            continue
        prompts.append(_prompt(text, index, ids, bos, tokenizer, rule))
        if limit is not None and len(prompts) >= limit:
            return prompts
    if not prompts:
        raise DataError(_no_prompt(len(texts), longest, rule))
    return prompts


def first_ids(prompts: Sequence[Prompt]) -> list[int]:
    """Return the first eight ids of the first prompt: recorded with a result, they show how BOS was handled."""
    return list(prompts[0].prefix_ids[:8])


def _encoded(texts: Sequence[str], tokenizer: Any, rule: PromptRule) -> Iterator[tuple[int, str, list[int]]]:
    """Yield (index, text, ids without special tokens); words rules get no ids, since only prefixes are encoded."""
    for start in range(0, len(texts), TEXTS_A_TIME):
        part = list(texts[start : start + TEXTS_A_TIME])
        ids = _encode(part, tokenizer) if rule.unit == "tokens" else [[] for _ in part]
        yield from ((start + i, text, row) for i, (text, row) in enumerate(zip(part, ids, strict=True)))


def _encode(texts: list[str], tokenizer: Any) -> list[list[int]]:
    # verbose=False: texts longer than the model's context are usual here, only their beginning is used.
    return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


def _decode(ids: Sequence[int], tokenizer: Any) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _prompt(text: str, index: int, ids: list[int], bos: tuple[int, ...], tokenizer: Any, rule: PromptRule) -> Prompt:
    end = rule.prefix + rule.continuation
    if rule.unit == "tokens":
        prefix, reference = _decode(ids[: rule.prefix], tokenizer), _decode(ids[:end], tokenizer)
        prefix_ids = ids[: rule.prefix]
    else:
        words = text.split(" ")
        prefix, reference = " ".join(words[: rule.prefix]), " ".join(words[:end])
        prefix_ids = _encode([prefix], tokenizer)[0]
    _check_bos(prefix_ids, bos, tokenizer, text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return Prompt(
        id=f"{digest}-{index}",
        text=text,
        prefix_ids=(*bos, *prefix_ids),
        prefix_text=prefix,
        reference_text=reference,
    )


def _bos_ids(tokenizer: Any, rule: PromptRule) -> tuple[int, ...]:
    if rule.bos == "none":
        return ()
    if tokenizer.bos_token_id is None:
        raise ModelError(
            f"The protocol asks for one BOS, but the tokenizer {type(tokenizer).__name__} has no BOS token; "
            "use bos: none, or give the tokenizer a bos_token."
        )
    return (tokenizer.bos_token_id,)


def _check_bos(prefix_ids: Sequence[int], bos: tuple[int, ...], tokenizer: Any, text: str) -> None:
    """Refuse a prefix that begins with a BOS before the rule's own is put there."""
    if prefix_ids and prefix_ids[0] == tokenizer.bos_token_id:
        raise ModelError(
            f"The prompt of {text[:40]!r} begins with {1 + len(bos)} BOS tokens where the protocol asks for "
            f"{len(bos)}: the tokenizer adds one although told not to, or the text begins with the token's name. "
            "Remove it from the text, or use another protocol."
        )


def _no_prompt(count: int, longest: int, rule: PromptRule) -> str:
    extra = f", {rule.min_characters} characters" if rule.min_characters else ""
    without = f" and none of {', '.join(map(repr, rule.without))}" if rule.without else ""
    return (
        f"None of {count} texts gives a prompt: a prefix of {rule.prefix} and a continuation of {rule.continuation} "
        f"need at least {rule.shortest} {rule.unit}{extra}{without}; the longest text has {longest} {rule.unit}. "
        "Use longer texts, or a protocol with shorter lengths."
    )
