"""Which examples of a data set a protocol uses: its share of the pool, and those that are answered."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.data.labelled import Example, LabelledData
from emobench.errors import ConfigError
from emobench.kinds.icl.rules import IclProtocol


def pool_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the share of the pool that shots are taken from, rounded as datasets does in `train[:30%]`."""
    held = {example.id for example in _held_out(rules, data)}
    return [example for example in _share(rules, data) if example.id not in held] if held else _share(rules, data)


def questions_of(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the examples that are answered: of the test split, or those of the pool that are held out."""
    answered = _held_out(rules, data) if rules.held_out else data.test
    return answered if rules.limit is None else answered[: rules.limit]


def units_of(rules: IclProtocol, data: LabelledData) -> dict[str, str]:
    """Return the sampling unit of each answered example that has one with others: its passage, or its group."""
    return {example.id: example.unit for example in questions_of(rules, data) if example.unit}


def _share(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    return data.pool[: max(1, round(rules.pool * len(data.pool)))]


def _held_out(rules: IclProtocol, data: LabelledData) -> Sequence[Example]:
    """Return the examples of lowest id, a digest of their texts: any order of the file gives the same ones."""
    share = _share(rules, data)
    if rules.held_out >= len(share):
        raise ConfigError(
            f"icl.held_out is {rules.held_out}; expected fewer than the {len(share)} examples of {data.name}'s pool."
        )
    return sorted(share, key=lambda example: example.id)[: rules.held_out] if rules.held_out else ()
