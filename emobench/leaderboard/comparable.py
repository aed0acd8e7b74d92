"""Which entries may be ranked together: those of one suite version, protocols, data, model and recipe."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from emobench.core.settings import content_hash, to_plain
from emobench.leaderboard.entry import Entry

MOST_NAMED = 4
"""Tasks of an entry that are named one by one."""
MOST_RULES = 6
"""Rules that are named one by one."""
LONGEST = 60
"""Characters of a rule's value."""
Rules = Mapping[str, Any]


def conditions(entry: Entry) -> dict[str, Any]:
    """Return all that must be equal for two entries to be ranked together, flat, under names for people."""
    suite, model = _suite_and_model(entry)
    facts: dict[str, Any] = {"suite": suite, "model": model}
    facts |= {f"protocol of {task}": protocol for task, protocol in entry.protocols.items()}
    facts |= {f"data of {name}": digest for name, digest in digests(entry).items()}
    recipe = {key: value for key, value in entry.recipe.items() if key != "objective"}
    return facts | _flat(to_plain(recipe), "recipe.")


def digests(entry: Entry) -> dict[str, str]:
    """Return the digest of each of an entry's data sets and models beside the evaluated one.

    Where the same texts came from ("sha256:... (local: ...)") makes no difference. How many prompts they gave ("prompts
    of ...") follows from texts, protocol and tokenizer, and is not known of generations that were removed.
    """
    data = entry.provenance.data
    return {name: digest.partition(" ")[0] for name, digest in data.items() if not name.startswith("prompts of ")}


def comparison_key(entry: Entry) -> str:
    """Return a hash of `conditions`: trained entries with the same one are ranked together."""
    return content_hash(conditions(entry))


def differences(a: Entry, b: Entry) -> list[str]:
    """Return why two entries may not be ranked together, in words; empty if they may.

    A model as it is (`pretrained`) had no recipe and no training corpus, so these do not count against it; what it was
    evaluated on, and the precision of its weights, do.
    """
    left, right = conditions(a), conditions(b)
    one_untrained = a.untrained != b.untrained
    of_untrained = left if a.untrained else right
    reasons = []
    other_tasks = _other_tasks(a, b)
    if other_tasks:
        reasons.append(other_tasks)
    rules = _other_rules(a, b)
    for name in dict.fromkeys([*left, *right]):
        absent = name not in left or name not in right
        if other_tasks and absent and name.startswith(("protocol of ", "data of ")):
            continue  # follows from the tasks
        if name.startswith("protocol of ") and not absent:
            if name in rules:
                reasons.append(rules[name])
            continue
        of_training = name.startswith(("data of ", "recipe.")) and name not in of_untrained
        if one_untrained and of_training:
            continue
        if not absent and left[name] == right[name]:
            continue
        if name != "model":
            reasons.append(f"{name}: {_shown(left, name)} and {_shown(right, name)}")
        else:
            why = ", whose weights or tokenizers differ" if a.model.name == b.model.name else ""
            reasons.append(f"model: {_model(a)} and {_model(b)}{why}")
    return reasons


def groups(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Split entries into those that may be ranked together, in the order given.

    A `pretrained` row joins every group that it is comparable with.
    """
    given = list(entries)
    by_key: dict[str, list[Entry]] = {}
    for entry in given:
        if not entry.untrained:
            by_key.setdefault(comparison_key(entry), []).append(entry)
    made = list(by_key.values())
    of_model: dict[tuple[str, str], list[list[Entry]]] = {}
    for group in made:
        of_model.setdefault(_suite_and_model(group[0]), []).append(group)
    alone: dict[str, list[Entry]] = {}
    for entry in given:
        if entry.untrained:
            near = of_model.get(_suite_and_model(entry), [])  # with any other, `differences` names at least these
            hosts = [group for group in near if not differences(entry, group[0])]
            for group in hosts:
                group.append(entry)
            if not hosts:
                alone.setdefault(comparison_key(entry), []).append(entry)
    return [*made, *alone.values()]


def _suite_and_model(entry: Entry) -> tuple[str, str]:
    return str(entry.suite), entry.model.revision or entry.model.source


def older_code(group: Sequence[Entry], own: Collection[str] = ()) -> frozenset[str]:
    """Return the ids of the rows of a comparable group whose objective was recorded again with newer code.

    Rows of the same objective and parameters have the same code if its version and source digest are the same; a row
    without a recorded digest is left out. Where there are several codes, that of the newest row counts, or of the
    newest among `own` (the ids of the run that is being shown: a run of just now is never "older").
    Older code is shown, and neither gets nor prevents a star or a place; nor can it be a baseline.
    """
    by_label: dict[str, list[Entry]] = {}
    for entry in group:
        if entry.objective.source_sha256:
            by_label.setdefault(entry.objective.label, []).append(entry)
    older: set[str] = set()
    for rows in by_label.values():
        newest = max(rows, key=lambda e: (e.id in own, e.provenance.created, e.id))
        code = newest.objective.version, newest.objective.source_sha256
        older |= {e.id for e in rows if (e.objective.version, e.objective.source_sha256) != code}
    return frozenset(older)


def changed_rules(entry: Entry, tasks: Sequence[str] = (), leaving: Rules | None = None) -> str:
    """Return the rules of an entry's tasks (those named, or all) that differ from the protocols of their names.

    In words, first what all tasks share: "sampling.method=greedy, limit=40"; "" where there are none, and for older
    entries, which recorded none. `leaving` holds rules to leave out, with their values.
    """
    of_tasks = {task: _other_than(entry.changes.get(task, {}), leaving or {}) for task in tasks or entry.protocols}
    common = shared_rules(list(of_tasks.values()))
    by_words: dict[str, list[str]] = {}
    for task, rules in of_tasks.items():
        if own := _words(_other_than(rules, common)):
            by_words.setdefault(own, []).append(task)
    parts = [f"{_listed(names, MOST_RULES)}: {own}" for own, names in by_words.items()]
    return "; ".join(filter(None, [_words(common), *parts]))


def shared_rules(several: Sequence[Rules]) -> dict[str, Any]:
    """Return the rules that all of several have, with the same value."""
    first = several[0] if several else {}
    return {k: v for k, v in first.items() if all(k in rules and rules[k] == v for rules in several)}


def _flat(mapping: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _other_tasks(a: Entry, b: Entry) -> str:
    """Return the tasks of both sides where they are not the same, those of one side alone first."""
    if set(a.protocols) == set(b.protocols):
        return ""
    sides: list[str] = []
    for mine, others in ((a.protocols, b.protocols), (b.protocols, a.protocols)):
        tasks = sorted(mine, key=lambda task: task in others)
        sides.append(_listed(tasks, MOST_NAMED) or "none")
    return f"other tasks: {' / '.join(sides)}"


def _other_rules(a: Entry, b: Entry) -> dict[str, str]:
    """Return the condition of the first of some tasks -> what differs in their protocols, in words.

    Tasks whose recorded rules differ alike stand together. Where none does, the ids alone tell protocols apart.
    """
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for task, own in a.protocols.items():
        other = b.protocols.get(task, own)
        if other == own:
            continue
        mine, theirs = a.changes.get(task, {}), b.changes.get(task, {})
        left, right = _words(_other_than(mine, theirs)), _words(_other_than(theirs, mine))
        if left or right:
            own, other = own.partition("@")[0], other.partition("@")[0]
        alike.setdefault((own, other, left, right), []).append(task)
    sentences = {}
    for (own, other, left, right), tasks in alike.items():
        if len(tasks) == 1:  # a side without words still has an id
            own = own if left else a.protocols[tasks[0]]
            other = other if right else b.protocols[tasks[0]]
        mine = f"{own} with {left}" if left else own
        theirs = f"{other} with {right}" if right else other
        sentences[f"protocol of {tasks[0]}"] = f"protocol of {_listed(tasks, MOST_NAMED)}: {mine} and {theirs}"
    return sentences


def _words(rules: Rules) -> str:
    """Return rules as --set takes them, after one another."""
    return _listed([f"{name}={_value(value)}" for name, value in rules.items()], MOST_RULES)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > LONGEST:
        return text[:LONGEST] + "…"
    return text


def _listed(texts: Sequence[str], most: int) -> str:
    shown = ", ".join(texts[:most])
    if len(texts) > most:
        return f"{shown} and {len(texts) - most} more"
    return shown


def _other_than(rules: Rules, others: Rules) -> dict[str, Any]:
    """Return the rules that `others` has not, or with another value."""
    return {name: value for name, value in rules.items() if name not in others or others[name] != value}


def _model(entry: Entry) -> str:
    return f"{entry.model.name} ({_short(entry.model.revision or entry.model.source)})"


def _shown(facts: Mapping[str, Any], name: str) -> str:
    return _short(str(facts[name])) if name in facts else "none"


def _short(text: str) -> str:
    return text[:13] if text.startswith("sha256:") else text
