"""From examples and shots to token lists: the prompt of each label, tokenized in one piece.

A prompt is never split at text: "sub" and "subjective" differ within a token. What the labels of one example share is
found among the tokens (`ExamplePrompts.shared`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emobench.core.errors import ConfigError, ModelError
from emobench.data.labelled import Example
from emobench.inference.scoring.trie import LabelPrompts
from emobench.kinds.icl.rules import LABEL, IclProtocol, fill

INPUT, TAIL = "input", "tail"
"""Parts of a prompt: the test example up to the label, and what follows the label."""


@dataclass(frozen=True, kw_only=True)
class ExamplePrompts(LabelPrompts):
    """The prompts of one test example, one for each label, in the order of the protocol's `ties`.

    They have the BOS that the protocol asks for. `label_starts` is None if the tokenizer gives no offsets, and of a
    prompt that was cut.
    """

    shots: tuple[str, ...]
    """Ids of the shots that fit, nearest first."""
    dropped: int = 0
    """Shots left out because the prompt was too long."""
    cut: int = 0
    """Tokens of the longest label's prompt that were cut off at its end."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One test example with its shots (nearest first), before it is known whether they fit."""

    example: Example
    shots: tuple[Example, ...]
    dropped: int = 0

    def texts(self, rules: IclProtocol, values: dict[str, str] | None = None) -> list[tuple[str, int]]:
        """Return, for each label, the whole text and where in it the label's own begins.

        `values` take the place of the example's fields.
        """
        *begin, (_, end) = self.parts(rules, values)
        before = ""
        for _, text in begin:
            before += text
        return [(before + label + end, len(before)) for label in rules.texts]

    def parts(self, rules: IclProtocol, values: dict[str, str] | None = None) -> list[tuple[str, str]]:
        """Return the prompt's parts in order, each with its name: header, shots, input, and what follows the label.

        A shot is named by its similarity: "shot 1" is the nearest, wherever it stands.
        """
        fields = {**self.example.fields, **(values or {})}
        before, after = rules.template.split(f"{{{LABEL}}}")
        shots = []
        for i, shot in enumerate(self.shots, 1):
            text = fill(rules.template, {**shot.fields, LABEL: rules.labels[shot.label]})
            shots.append((f"shot {i}", text + rules.separator))
        if rules.order != "nearest-first":
            shots.reverse()
        asked = [(INPUT, fill(before, fields)), (TAIL, fill(after, fields))]
        return [("header", fill(rules.header, fields)), *shots, *asked]


def make_prompts(
    drafts: Sequence[Draft],
    tokenizer: Any,
    rules: IclProtocol,
    limit: int | None,
    *,
    task: str,
    values: dict[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ExamplePrompts]:
    """Tokenize each example's prompts; those over `limit` tokens are shortened by the rule `too_long`.

    They lose their least similar shots, for all labels alike, or the end of each label's prompt.
    Raises ConfigError, naming the task, for a prompt that does not fit even without shots; ModelError for labels of
    equal tokens, and for a BOS that is not as the protocol has it.
    """
    prompts = []
    for draft in drafts:
        while True:
            texts = draft.texts(rules, values)
            tokens, offsets = tokenize([text for text, _ in texts], tokenizer, rules)
            longest = max(map(len, tokens))
            over = 0 if limit is None else max(longest - limit, 0)
            if not over or rules.too_long == "cut_right":
                break
            if not draft.shots:
                raise ConfigError(
                    f"Task {task}, {draft.example.where or draft.example.id}: the prompt has {longest} tokens without "
                    f"any shot, but at most {limit} are read. Take the example out of the data, or a model with a "
                    "longer context."
                )
            draft = replace(draft, shots=draft.shots[:-1], dropped=draft.dropped + 1)
        for i, ids in enumerate(tokens):
            first = tokens.index(ids)
            if first < i:
                raise ModelError(
                    f"Task {task}: the tokenizer gives the labels '{rules.texts[first]}' and '{rules.texts[i]}' the "
                    "same tokens, so that a model cannot tell them apart. Take a model whose tokenizer knows these "
                    "words, or set icl.labels."
                )
        starts = None
        if offsets is not None and not over:
            places = []
            for row, (_, at) in zip(offsets, texts, strict=True):
                places.append(_start(row, at))
            starts = tuple(places)
        kept = [ids[:limit] for ids in tokens]
        shots = [shot.id for shot in draft.shots]
        prompt = ExamplePrompts(
            id=draft.example.id,
            tokens=tuple(kept),
            label_starts=starts,
            shots=tuple(shots),
            dropped=draft.dropped,
            cut=over,
        )
        prompts.append(prompt)
        if progress is not None:
            progress(len(prompts), len(drafts))
    return prompts


def _start(offsets: Sequence[tuple[int, int]], at: int) -> int:
    """Return the first token that holds a character at or behind a place."""
    for i, (_, end) in enumerate(offsets):
        if end > at:
            return i
    return len(offsets)


def check_boundaries(prompts: Sequence[ExamplePrompts], task: str, labels: Sequence[str]) -> None:
    """Raise ModelError where what stands before the label is not the same tokens for every label, or a label has none.

    A label's own loss is then not comparable between labels; that of the whole prompt still is.
    """
    for prompt in prompts:
        if prompt.label_starts is None:
            raise ModelError(
                f"Task {task}: this tokenizer has no fast form (tokenizer.json), so that a label's own tokens are not "
                "known; use --set icl.scorer=prompt, or convert the tokenizer."
            )
        first = prompt.tokens[0][: prompt.label_starts[0]]
        for label, ids, start in zip(labels, prompt.tokens, prompt.label_starts, strict=True):
            if start >= len(ids):
                raise ModelError(
                    f"Task {task}, example {prompt.id}: the tokenizer gives the label '{label}' no token of its own. "
                    "Take a model whose tokenizer knows the word, or set icl.labels."
                )
            if ids[:start] != first:
                raise ModelError(
                    f"Task {task}, example {prompt.id}: the tokenizer splits what stands before the label otherwise "
                    f"for '{label}' than for '{labels[0]}', so that the labels' own losses cannot be compared; use "
                    "--set icl.scorer=prompt, or a template with a space before {label}."
                )


def tokenize(
    texts: Sequence[str], tokenizer: Any, rules: IclProtocol
) -> tuple[list[tuple[int, ...]], list[list[tuple[int, int]]] | None]:
    """Return each text's tokens, with the BOS that the protocol asks for, and the characters of each token.

    A token that stands for no text has the characters (0, 0); a tokenizer without a fast form tells of none. Raises
    ModelError for a BOS that is missing or doubled, and for an EOS that the tokenizer puts behind the prompt.
    """
    fast, bos, eos = bool(getattr(tokenizer, "is_fast", False)), tokenizer.bos_token_id, tokenizer.eos_token_id
    # Not verbose: prompts that are too long for the model lose shots afterwards.
    encoded = tokenizer(
        list(texts),
        add_special_tokens=rules.bos == "tokenizer",
        truncation=False,
        return_attention_mask=False,
        return_offsets_mapping=fast,
        verbose=False,
    )
    begin: tuple[int, ...] = ()
    if rules.bos == "one":
        if bos is None:
            raise ModelError(
                f"The protocol asks for one BOS, but the tokenizer {type(tokenizer).__name__} has no BOS token; use "
                "--set icl.bos=tokenizer, or give the tokenizer a bos_token."
            )
        begin = (bos,)
    rows = [(*begin, *ids) for ids in encoded["input_ids"]]
    for row in rows:
        count = 0
        while count < len(row) and row[count] == bos:
            count += 1
        if not (rules.bos == "one") <= count <= (rules.bos != "none"):
            raise ModelError(
                f"A prompt begins with {count} BOS tokens where the protocol asks for bos={rules.bos}: the tokenizer "
                "adds its own, or the text begins with the token's name. Use --set icl.bos=tokenizer, or mend the "
                "tokenizer."
            )
        if len(row) > 1 and eos is not None and row[-1] == eos:
            raise ModelError(
                "The tokenizer puts an EOS token behind the prompt, which would be scored with the label; turn it off "
                "(`add_eos_token`), or use --set icl.bos=none."
            )
    if not fast:
        return rows, None
    of_begin = [(0, 0)] * len(begin)
    return rows, [of_begin + list(row) for row in encoded["offset_mapping"]]
