"""From test texts to prompts: the choice of texts, the input of the model, and the reference of its text.

The paper counts tokens of the evaluated model, the official code counts words; a protocol says which, as data:

    PromptRule(unit="tokens", prefix=20, continuation=80)                      every text of at least 100 tokens
    PromptRule(unit="words", prefix=20, continuation=80, margin=10,            the official evaluation code
               min_characters=100, without=("==",), joiner=" ")
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from emobench.core.errors import DataError, ModelError
from emobench.kinds.generation.rules import PromptRule

TEXTS_A_TIME = 256
REASONS = ("too_short", "too_few_characters", "excluded")


@dataclass(frozen=True, kw_only=True)
class ContinuationPrompt:
    """One prefix and the human text that begins with it."""

    id: str  # first 12 hex of sha256 of the whole text, then its index: "9f86d081884c-17"
    text: str
    prefix_ids: tuple[int, ...]  # the input of the model, with BOS if the rule says so
    prefix_text: str
    reference_text: str  # prefix and the human continuation


@dataclass(frozen=True, kw_only=True)
class SelectedPrompts:
    """The prompts that a split's texts gave, and what became of the other texts: each is counted once."""

    prompts: list[ContinuationPrompt]
    texts: int
    """Of the split."""
    limit: int | None
    """Maximum number of prompts; the entry reports fewer ones."""
    dropped: Mapping[str, int]
    """too_short, too_few_characters, excluded (by a string), not_looked_at (the limit, or the rule's first texts)."""

    def to_json(self) -> str:
        """Return {"texts": ..., "used": ..., "limit": ..., and the counts of `dropped`}."""
        counts = {"texts": self.texts, "used": len(self.prompts), "limit": self.limit, **self.dropped}
        return json.dumps(counts, indent=2) + "\n"

    def __str__(self) -> str:
        dropped = [f"{count} {reason.replace('_', ' ')}" for reason, count in self.dropped.items() if count]
        text = f"{len(self.prompts)} of {self.texts} texts"
        return f"{text} ({', '.join(dropped)})" if dropped else text


def select_prompts(texts: Sequence[str], tokenizer: Any, rule: PromptRule, limit: int | None = None) -> SelectedPrompts:
    """Return a prompt for each text that the rule admits, in order, the first `limit` of them.

    Raises DataError if no text is long enough, ModelError if the tokenizer cannot keep the rule's BOS.
    """
    bos = bos_ids(tokenizer, rule)
    prompts = []
    dropped: dict[str, int] = dict.fromkeys(REASONS, 0)
    lengths = []
    for text, ids in _encoded(texts[: rule.first_texts], tokenizer, rule):
        if limit is not None and len(prompts) >= limit:
            break
        length = len(ids) if rule.unit == "tokens" else len(text.split(" "))
        if reason := _reason(text, length, rule):
            dropped[reason] += 1
        else:
            prompts.append(_prompt(text, len(lengths), ids, bos, tokenizer, rule))
        lengths.append(length)
    if not prompts:
        raise DataError(_without_prompts(lengths, rule))
    dropped["not_looked_at"] = len(texts) - len(lengths)
    return SelectedPrompts(prompts=prompts, texts=len(texts), limit=limit, dropped=dropped)


def _without_prompts(lengths: Sequence[int], rule: PromptRule) -> str:
    """Return why texts of these lengths give no prompt, and lengths that half of them allow if all are too short."""
    needed = f"at least {rule.shortest} {rule.unit}"
    if rule.min_characters:
        needed += f", at least {rule.min_characters} characters"
    if rule.without:
        needed += f", none of the strings {list(rule.without)}"
    longest = max(lengths, default=0)
    advice = "Use longer texts."
    half = median_low(lengths or [0]) - rule.margin
    if longest < rule.shortest and half > 1:
        prefix = max(half * rule.prefix // (rule.prefix + rule.continuation), 1)
        settings = f"--set generation.prefix={prefix} --set generation.continuation={half - prefix}"
        advice = f"Use longer texts, or {settings}, for which half of the texts are long enough."
    return (
        f"None of {len(lengths)} texts gives a prompt: a prefix of {rule.prefix} and a continuation of "
        f"{rule.continuation} need {needed}; the longest text has {longest} {rule.unit}. {advice}"
    )


def _reason(text: str, length: int, rule: PromptRule) -> str | None:
    """Return the first reason why a text gives no prompt, or None."""
    if length < rule.shortest:
        return "too_short"
    if len(text) < rule.min_characters:
        return "too_few_characters"
    return "excluded" if any(part in text for part in rule.without) else None


def admits(text: str, rule: PromptRule) -> bool:
    """Return whether a text may give a prompt; of tokens it is only known that each has a character."""
    length = len(text) if rule.unit == "tokens" else len(text.split(" "))
    return _reason(text, length, rule) is None


def _encoded(texts: Sequence[str], tokenizer: Any, rule: PromptRule) -> Iterator[tuple[str, list[int]]]:
    """Yield (text, ids without special tokens); words rules get no ids, since only prefixes are encoded."""
    for start in range(0, len(texts), TEXTS_A_TIME):
        part = list(texts[start : start + TEXTS_A_TIME])
        ids = _encode(part, tokenizer) if rule.unit == "tokens" else [[]] * len(part)
        yield from zip(part, ids, strict=True)


def _encode(texts: list[str], tokenizer: Any) -> list[list[int]]:
    # verbose=False: texts longer than the model's context are usual here, only their beginning is used.
    return tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]


def decode(ids: Sequence[int], tokenizer: Any) -> str:
    """Return the text of ids, special tokens by their names."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _prompt(
    text: str, index: int, ids: list[int], bos: tuple[int, ...], tokenizer: Any, rule: PromptRule
) -> ContinuationPrompt:
    end = rule.prefix + rule.continuation
    if rule.unit == "tokens":
        prefix_ids = ids[: rule.prefix]
        prefix = decode(prefix_ids, tokenizer)
        reference = decode(ids[:end], tokenizer)
    else:
        words = text.split(" ")
        prefix = " ".join(words[: rule.prefix])
        reference = " ".join(words[:end])
        prefix_ids = _encode([prefix], tokenizer)[0]
    if prefix_ids and prefix_ids[0] == tokenizer.bos_token_id:
        raise ModelError(
            f"The prompt of {text[:40]!r} begins with {1 + len(bos)} BOS tokens where the protocol asks for "
            f"{len(bos)}: the tokenizer adds one although it should not, or the text begins with the token's name. "
            "Remove it from the text, or use another protocol."
        )
    return ContinuationPrompt(
        id=prompt_id(text, index),
        text=text,
        prefix_ids=(*bos, *prefix_ids),
        prefix_text=prefix,
        reference_text=reference,
    )


def prompt_id(text: str, index: int) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{digest}-{index}"


def bos_ids(tokenizer: Any, rule: PromptRule) -> tuple[int, ...]:
    """Return the ids before each prompt's own: BOS or none. Raises ModelError if the tokenizer has no BOS.

    By the rule "tokenizer", it is BOS if the tokenizer begins a text with it: GPT-2's does not, OPT's and LLaMA's do.
    """
    bos = tokenizer.bos_token_id
    if rule.bos == "none":
        return ()
    if rule.bos == "tokenizer":
        plain, full = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
        if len(full) == len(plain) or full[0] != bos:
            return ()
    if bos is None:
        raise ModelError(
            f"The protocol asks for one BOS, but the tokenizer {type(tokenizer).__name__} has no BOS token; "
            "use bos: none, or give the tokenizer a bos_token."
        )
    return (bos,)


def text_of(prompt_id: str) -> int:
    """Return the number of the text that a prompt was cut from, by the prompt's id."""
    return int(prompt_id.rpartition("-")[2])
