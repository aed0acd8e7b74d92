"""Which examples of a data set a protocol uses, and the texts of them that retrieval compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from emobench.core.errors import ConfigError
from emobench.data.labelled import Example, LabelledData
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


def pool_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the share of the pool that shots are taken from, rounded as datasets does in `train[:30%]`."""
    held = {example.id for example in _held_out(rules, data)}
    return [example for example in _share(rules, data) if example.id not in held]


def questions_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the examples that are answered: of the test split, or those of the pool that are held out."""
    questions = _held_out(rules, data) if rules.held_out else data.test
    return questions[: rules.limit]


def _share(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    return data.pool[: max(1, round(rules.pool * len(data.pool)))]


def _held_out(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the examples of lowest id, a digest of their texts: any order of the file gives the same ones."""
    if not rules.held_out:
        return ()
    share = _share(rules, data)
    if rules.held_out >= len(share):
        raise ConfigError(
            f"icl.held_out is {rules.held_out}; expected fewer than the {len(share)} examples of {data.name}'s pool."
        )
    return sorted(share, key=lambda example: example.id)[: rules.held_out]


def query_texts(rules: IclProtocol, examples: Sequence[Example]) -> list[str]:
    """Return the texts that retrieval compares.

    "gpt2-decoded" is what transformers 4 made of a text by tokenizing it with GPT-2 and decoding it: byte-level BPE
    gives every text back, and then decode() joined what it took for split words. Equal to transformers 4.30.2 on all
    texts of TREC, SST-2, Subj, Rotten Tomatoes and AG News; GPT-2's truncation at 1024 tokens, which none of them
    reaches, is left out.
    """
    texts = [example.text(rules.query) for example in examples]
    return texts if rules.query_text == "raw" else [_detokenized(text) for text in texts]


def _detokenized(text: str) -> str:
    """Return what transformers 4's PreTrainedTokenizerBase.clean_up_tokenization makes of a text."""
    for split, joined in DETOKENIZED:
        text = text.replace(split, joined)
    return text


def search_keys(rules: IclProtocol, examples: Sequence[Example]) -> Iterator[tuple[str, str]]:
    """Yield the group and the text of each example: all that a search sees of it."""
    for example, text in zip(examples, query_texts(rules, examples), strict=True):
        yield example.group, text


def check_pool(task: Task, data: LabelledData) -> None:
    """Raise ConfigError if fewer pool examples may be a test example's shots than it asks for."""
    rules = task.protocol_as(IclProtocol)
    pool, test = pool_of(rules, data), questions_of(rules, data)
    groups = Counter(example.group for example in pool)
    copies: Counter[tuple[str, str]] = Counter()
    if rules.exclude_duplicates:
        copies.update(search_keys(rules, pool))
    for example, key in zip(test, search_keys(rules, test), strict=True):
        left = groups[example.group] - copies[key]
        if left < rules.shots:
            of = f" of group {example.group}" if example.group else ""
            besides = f" besides those with the text of {example.where or example.id}" if copies[key] else ""
            file = data.pool[0].where.rpartition(":")[0]
            raise ConfigError(
                f"Task {task.name}, {file}: the pool has {left} examples{of}{besides}, fewer than the {rules.shots} "
                f"shots; give more, or --set icl.shots={left}."
            )


def duplicate_flags(rules: IclProtocol, data: LabelledData) -> tuple[str, ...]:
    """Return the flags of a score for test examples whose query text is in the pool, too.

    The pool is that of the example's group; such a text is among the shots of most retrievers, with its label.
    """
    if rules.shots == 0 or rules.exclude_duplicates:
        return ()
    pool_keys = set(search_keys(rules, pool_of(rules, data)))
    keys = list(search_keys(rules, questions_of(rules, data)))
    count = sum(key in pool_keys for key in keys)
    return (f"{count}_of_{len(keys)}_test_texts_are_also_in_the_pool",) if count else ()
