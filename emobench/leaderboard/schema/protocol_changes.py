"""The rules of an entry that differ from the protocols of their names, in words: "sampling.method=greedy, limit=40".

Entries that recorded none, as older ones did, have no words: that none is told says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from emobench.leaderboard.schema.entry import Entry

MOST = 6
"""Rules that are named one by one."""
LONGEST = 60
"""Characters of a value."""

Rules = Mapping[str, Any]


def said(entry: Entry, tasks: Sequence[str] = (), leaving: Rules | None = None) -> str:
    """Return the changed rules of an entry's tasks (those named, or all), first what all of them share; else "".

    `leaving` holds rules to leave out, with their values.
    """
    left_out = leaving or {}
    of_tasks = {task: other_than(entry.changes.get(task, {}), left_out) for task in tasks or entry.protocols}
    common = shared(list(of_tasks.values()))
    by_words: dict[str, list[str]] = {}
    for task, rules in of_tasks.items():
        if own := words(other_than(rules, common)):
            by_words.setdefault(own, []).append(task)
    return "; ".join(filter(None, [words(common), *(f"{_named(of)}: {own}" for own, of in by_words.items())]))


def words(rules: Rules) -> str:
    """Return rules as --set takes them, after one another."""
    texts = [f"{name}={_value(value)}" for name, value in rules.items()]
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return ", ".join(texts[:MOST]) + more


def other_than(rules: Rules, others: Rules) -> dict[str, Any]:
    """Return the rules that `others` has not, or with another value."""
    return {name: value for name, value in rules.items() if name not in others or others[name] != value}


def shared(several: Sequence[Rules]) -> dict[str, Any]:
    """Return the rules that all of several have, with the same value."""
    first = several[0] if several else {}
    return {k: v for k, v in first.items() if all(k in rules and rules[k] == v for rules in several)}


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _named(tasks: Sequence[str]) -> str:
    more = f" and {len(tasks) - MOST} more" if len(tasks) > MOST else ""
    return ", ".join(tasks[:MOST]) + more
