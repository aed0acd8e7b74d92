"""The texts that retrieval compares: what is made of them, which stand on both sides, and whether there are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from emobench.data.labelled import Example, LabelledData
from emobench.errors import ConfigError
from emobench.kinds.icl.examples import pool_of, questions_of
from emobench.kinds.icl.rules import IclProtocol
from emobench.tasks.spec import Task

DETOKENIZED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


def query_texts(rules: IclProtocol, examples: Sequence[Example]) -> list[str]:
    """Return the texts that retrieval compares.

    "gpt2-decoded" is what transformers 4 made of a text by tokenizing it with GPT-2 and decoding it: byte-level BPE
    gives every text back, and then decode() joined what it took for split words. Equal to transformers 4.30.2 on all
    texts of TREC, SST-2, Subj, Rotten Tomatoes and AG News; GPT-2's truncation at 1024 tokens, which none of them
    reaches, is left out.
    """
    texts = [example.text(rules.query) for example in examples]
    return texts if rules.query_text == "raw" else [_detokenized(text) for text in texts]


def check_pool(task: Task, data: LabelledData) -> None:
    """Raise ConfigError where fewer pool examples may be a test example's shots than it asks for."""
    rules = task.protocol_as(IclProtocol)
    pool, test = pool_of(rules, data), questions_of(rules, data)
    groups = Counter(example.group for example in pool)
    twins = Counter(search_keys(rules, pool) if rules.exclude_duplicates else ())
    for example, key in zip(test, search_keys(rules, test), strict=True):
        left = groups[example.group] - twins[key]
        if left < rules.shots:
            of = f" of group {example.group}" if example.group else ""
            besides = f" besides those with the text of {example.where or example.id}" if twins[key] else ""
            file = data.pool[0].where.rpartition(":")[0]
            raise ConfigError(
                f"Task {task.name}, {file}: the pool has {left} examples{of}{besides}, fewer than the {rules.shots} "
                f"shots; give more, or --set icl.shots={left}."
            )


def twin_flags(rules: IclProtocol, data: LabelledData) -> tuple[str, ...]:
    """Return what a score must say of test examples that have a twin in the pool, one with the same query text.

    The pool is that of the example's group; the text of a twin is among the shots of most retrievers, with its label.
    """
    if rules.shots == 0 or rules.exclude_duplicates:
        return ()
    known, keys = set(search_keys(rules, pool_of(rules, data))), list(search_keys(rules, questions_of(rules, data)))
    count = sum(key in known for key in keys)
    return (f"{count}_of_{len(keys)}_test_texts_are_also_in_the_pool",) if count else ()


def search_keys(rules: IclProtocol, examples: Sequence[Example]) -> Iterator[tuple[str, str]]:
    """Yield the group and the text of each example: all that a search sees of it."""
    yield from zip((example.group for example in examples), query_texts(rules, examples), strict=True)


def _detokenized(text: str) -> str:
    """Return what transformers 4's PreTrainedTokenizerBase.clean_up_tokenization makes of a text."""
    for split, joined in DETOKENIZED:
        text = text.replace(split, joined)
    return text
