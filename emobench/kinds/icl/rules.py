"""In-context learning: the rules of a task that is answered from a prompt with shots (EMO paper, 4.2 and A.5)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from emobench.core.errors import ConfigError
from emobench.core.settings import check_settings, setting
from emobench.tasks.rules import Rules, model_rule, once, seeds

FIELD = re.compile(r"\{(\w+)\}")
LABEL = "label"

Scorer = Literal["prompt", "label", "label_token", "label_byte", "calibrated"]


@dataclass(frozen=True, kw_only=True)
class IclProtocol(Rules):
    """A prompt, its shots, and the rule that turns losses into an answer.

    The prompt of a label is header + (shot + separator) for each shot + the template with the test example's fields
    and the label's text, tokenized in one piece. Fields are `{text}`, `{group}`, ...: those of the data set.
    """

    NOT_IDENTIFYING: ClassVar = ("engine",)  # all engines give the same losses

    template: str
    """One example; `{label}` is the place of the label's text."""
    labels: dict[str, str]
    """Class -> its text."""
    ties: tuple[str, ...] = ()
    """The order of the classes for equal losses: the first one wins. Empty: the order of `labels`."""
    header: str = ""
    """Text before the shots; may have fields of the test example."""
    separator: str = "\n"
    """Text after each shot."""
    shots: int = setting(8, low=0, high=10_000)
    """Number of solved examples in a prompt."""
    retriever: str = "dense"
    """A retriever's name, with parameters where it has some: "bm25(k1=1.2)"."""
    encoder: str = model_rule("all-mpnet-base-v2")
    """The sentence encoder of the retriever `dense`: an alias, a folder or a hub id of sentence-transformers."""
    query: tuple[str, ...] = ("text",)
    """The fields that retrieval compares, joined by a space."""
    query_text: Literal["raw", "gpt2-decoded"] = "raw"
    """raw, or tokenized and decoded by GPT-2 with the spaces cleaned up, as transformers 4 did for the official code
    (" ." becomes ".")."""
    order: Literal["nearest-first", "nearest-last"] = "nearest-first"
    """nearest-first is OpenICL's: the least similar shot stands next to the test example."""
    pool: float = setting(1.0, above=0, high=1)
    """The first share of the pool that shots are taken from."""
    held_out: int = setting(0, low=0, high=10**9)
    """Number of pool examples that are answered in place of the test split and are never shots, for choosing an
    objective's parameters. They have the lowest ids, which are digests of their texts."""
    seed: int = 0
    """Seed of retrievers that draw at random."""
    exclude_duplicates: bool = False
    """Whether pool examples with the test example's text are left out. Otherwise they stay and are counted."""
    scorer: Scorer = "prompt"
    """The loss that the answer minimises. prompt: nats of the whole prompt over its number of tokens (OpenICL's rule);
    label: nats of the label's tokens, their sum; label_token, label_byte: that sum over tokens or bytes; calibrated:
    the sum minus that of a content-free input (Zhao et al., ICML 2021)."""
    content_free: tuple[str, ...] = ("N/A",)
    """calibrated: texts that take the place of the test example's fields; their losses are averaged."""
    bos: Literal["tokenizer", "none", "one"] = "tokenizer"
    """Beginning-of-text tokens. tokenizer: as the tokenizer adds them, none or one. one: exactly one."""
    max_length: int | None = setting(None, low=2, high=2**20)
    """Maximum tokens of a prompt. None: the model's context."""
    too_long: Literal["drop_shots", "cut_right"] = "drop_shots"
    """How longer prompts are shortened. drop_shots: the least similar shots are dropped. cut_right: the end is cut, and
    with it the label, so that all labels tie and the first one answers. OpenICL does so at the `model_max_length` of
    the tokenizer if it gets no limit, as in the official code."""
    engine: Literal["auto", "trie", "plain"] = "auto"
    """Scoring engine. trie: common beginnings of prompts, of one or several examples, are read once. plain: each prompt
    is read by itself. auto: trie if the model gives the same losses with it, else plain."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Maximum number of test examples, the first ones."""

    def __post_init__(self) -> None:
        in_template = FIELD.findall(self.template)
        in_header = FIELD.findall(self.header)
        if in_template.count(LABEL) != 1 or LABEL in in_header or not {*in_template, *in_header} > {LABEL}:
            raise ConfigError(
                f"`template` is {self.template!r}; expected a text with {{label}} and a field of the data, such as "
                "{text}: {label} stands once in it, and not in `header`."
            )
        _check_labels(self.labels)
        object.__setattr__(self, "ties", self.ties or tuple(self.labels))  # the order counts as a rule
        if sorted(self.ties) != sorted(self.labels):
            raise ConfigError(f"`ties` is {list(self.ties)}; expected each of {', '.join(self.labels)} once.")
        check_settings(self)
        seeds("seed", self.seed)
        if self.too_long == "cut_right" and self.scorer != "prompt":
            raise ConfigError(
                f"`scorer` is {self.scorer}, a loss of the label's own tokens, which `too_long` cut_right may cut off; "
                "expected scorer=prompt, or too_long=drop_shots."
            )
        if self.scorer == "calibrated" and not self.content_free:
            raise ConfigError("`content_free` is empty; scorer=calibrated needs a text such as 'N/A'.")
        once("content_free", self.content_free, "which would weigh it twice in the mean")

    @property
    def texts(self) -> tuple[str, ...]:
        """The labels' texts, in the order of `ties`."""
        return tuple(map(self.labels.__getitem__, self.ties))

    @property
    def fields(self) -> Iterator[str]:
        """The data set's fields that the prompt and retrieval use."""
        for name in FIELD.findall(self.header + self.template):
            if name != LABEL:
                yield name
        yield from self.query


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put fields into a template, all at once: braces inside of a field's text stay as they are."""
    return FIELD.sub(lambda match: values[match[1]], template)


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) < 2:
        raise ConfigError(f"`labels` is {dict(labels)}; expected the texts of two or more classes.")
    for name, text in labels.items():
        if not text.strip():
            raise ConfigError(f"`labels`: the text of '{name}' is empty; give it a word.")
    once("labels", list(labels.values()), "so that two classes have the same text")
