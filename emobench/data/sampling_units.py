"""The sampling units of examples: which of them were drawn together.

Examples with equal content are one unit: a text that a data set has 32 times is one draw, not 32. Case and white space
make no difference. Data may name larger units, such as a passage or a subject, and equal content in two of these joins
both. Units are therefore the connected components of a graph whose nodes are examples, contents and names.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any


@functools.lru_cache(maxsize=16)  # the requests of one question begin with the same long prompt
def plain_text(text: str) -> str:
    """Return a text in lower case with single spaces: copies of a text often differ by more spaces or by capitals."""
    return " ".join(text.split()).casefold()


def text_digest(*texts: str) -> str:
    """Return the first 12 hex digits of the sha256 of texts as `plain_text`, joined by the unit separator, U+001F."""
    return _digest("\x1f".join(map(plain_text, texts)))


def content_digest(value: Any) -> str:
    """Return the digest of a value of JSON, whose texts count as `plain_text`."""
    return _digest(json.dumps(_plain(value), sort_keys=True, default=str))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """Return a value of JSON with its texts as `plain_text`."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {str(key): _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def joined_units(
    contents: Mapping[str, Collection[str]], named: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the unit of each example that was drawn together with others.

    `contents` has the digests of what a model reads of each example, without its target: examples with a digest in
    common are one unit. `named` has the units that the data name. A unit is called by the first of its names, or else
    by the first of its digests, in alphabetical order, so that its name does not depend on the order of the examples.
    """
    marks: dict[str, list[str]] = {}
    for example in dict.fromkeys([*contents, *named]):
        marks[example] = [f"text {digest}" for digest in contents.get(example, ())]
        if example in named:
            marks[example].insert(0, named[example])
    groups = _Groups()
    for example, own in marks.items():
        groups.join([f"example {example}", *(f"mark {mark}" for mark in own)])
    members: dict[str, list[str]] = {}
    for example in marks:
        members.setdefault(groups.root(f"example {example}"), []).append(example)
    units = {}
    for examples in members.values():
        if len(examples) > 1:
            name = _name(examples, marks, named)
            units |= dict.fromkeys(examples, name)
    return units


def _name(examples: Collection[str], marks: Mapping[str, Collection[str]], named: Mapping[str, str]) -> str:
    names = {named[example] for example in examples if example in named}
    return min(names or {mark for example in examples for mark in marks[example]})


class _Groups:
    """Disjoint sets of names."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def root(self, name: str) -> str:
        """Return the representative of a name's set."""
        parents = self._parents
        parents.setdefault(name, name)
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    def join(self, names: Collection[str]) -> None:
        """Unite the sets of these names."""
        first, *others = names
        for other in others:
            self._parents[self.root(other)] = self.root(first)
