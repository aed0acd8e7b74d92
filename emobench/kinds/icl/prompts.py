"""From examples and shots to token lists: the prompt of each label, tokenized in one piece.

A prompt is never split at text: "sub" and "subjective" differ within a token. What the labels of one example share is
found among the tokens (`ExamplePrompts.shared`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from emobench.core.errors import ConfigError, ModelError
from emobench.data.labelled import Example
from emobench.inference.scoring.trie import LabelPrompts
from emobench.kinds.icl.rules import LABEL, IclProtocol, fill

EXAMPLES_A_TIME = 64
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
        *begin, end = (text for _, text in self.parts(rules, values))
        before = "".join(begin)
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
    fitting: dict[int, ExamplePrompts] = {}
    waiting = dict(enumerate(drafts))
    while waiting:
        places = list(islice(waiting, EXAMPLES_A_TIME))
        encoded = _encode([waiting[place].texts(rules, values) for place in places], tokenizer, rules)
        for place, (tokens, starts) in zip(places, encoded, strict=True):
            draft, longest = waiting[place], max(map(len, tokens))
            over = 0 if limit is None else max(longest - limit, 0)
            if over and rules.too_long == "drop_shots":
                waiting[place] = _shorter(draft, longest, longest - over, task)
                continue
            _check_told_apart(tokens, rules, task)
            fitting[place] = ExamplePrompts(
                id=draft.example.id,
                tokens=tuple(ids[:limit] for ids in tokens),
                label_starts=None if over else starts,
                shots=tuple(shot.id for shot in draft.shots),
                dropped=draft.dropped,
                cut=over,
            )
            del waiting[place]
        if progress is not None:
            progress(len(fitting), len(drafts))
    return [fitting[place] for place in range(len(drafts))]


def room(rules: IclProtocol, context: int | None) -> int | None:
    """Return the most tokens that a prompt may have."""
    limits = [n for n in (rules.max_length, context) if n is not None]
    return min(limits, default=None)


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


def _shorter(draft: Draft, length: int, limit: int, task: str) -> Draft:
    if not draft.shots:
        raise ConfigError(
            f"Task {task}, {draft.example.where or draft.example.id}: the prompt has {length} tokens without any shot, "
            f"but at most {limit} are read. Take the example out of the data, or a model with a longer context."
        )
    return replace(draft, shots=draft.shots[:-1], dropped=draft.dropped + 1)


def _check_told_apart(tokens: Sequence[tuple[int, ...]], rules: IclProtocol, task: str) -> None:
    first: dict[tuple[int, ...], str] = {}
    for ids, label in zip(tokens, rules.texts, strict=True):
        if ids in first:
            raise ModelError(
                f"Task {task}: the tokenizer gives the labels '{first[ids]}' and '{label}' the same tokens, so that a "
                "model cannot tell them apart. Take a model whose tokenizer knows these words, or set icl.labels."
            )
        first[ids] = label


def _encode(
    examples: Sequence[list[tuple[str, int]]], tokenizer: Any, rules: IclProtocol
) -> Iterator[tuple[tuple[tuple[int, ...], ...], tuple[int, ...] | None]]:
    """Yield, for each example, the tokens of each label's prompt and where the label's own begin."""
    flat = [text for texts in examples for text in texts]
    rows, offsets = tokenize([text for text, _ in flat], tokenizer, rules)
    starts = None
    if offsets is not None:  # the first token that holds a character at or behind the label's begin
        starts = []
        for row, (_, at) in zip(offsets, flat, strict=True):
            starts.append(next((i for i, (_, end) in enumerate(row) if end > at), len(row)))
    done = 0
    for texts in examples:
        part = slice(done, done + len(texts))
        done = part.stop
        yield tuple(rows[part]), None if starts is None else tuple(starts[part])


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
    if not fast:
        return rows, None
    return rows, [[(0, 0)] * len(bos) + list(row) for row in encoded["offset_mapping"]]


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
    count = 0
    while bos is not None and count < len(ids) and ids[count] == bos:
        count += 1
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
