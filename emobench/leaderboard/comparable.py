"""Which entries may be ranked together: those of one suite version, protocols, data, model and recipe."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from emobench.core.settings import content_hash, dotted_settings, to_plain
from emobench.leaderboard.entry import Entries, Entry
from emobench.leaderboard.labels import listed

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
    for task, protocol in entry.protocols.items():
        facts[f"protocol of {task}"] = protocol
    for name, digest in digests(entry).items():
        facts[f"data of {name}"] = digest
    recipe = dict(entry.recipe)
    recipe.pop("objective", None)
    facts |= dict(dotted_settings(to_plain(recipe), "recipe."))
    if entry.tuning is not None:
        # Tuned settings may differ; the space and the budget that they are from may not.
        for name in entry.tuning.space:
            ending = f".{name.removeprefix('recipe.')}"
            for of_recipe in [fact for fact in facts if fact.startswith("recipe.") and fact.endswith(ending)]:
                del facts[of_recipe]
        facts["recipe.tuning"] = str(entry.tuning)
    return facts


def digests(entry: Entry) -> dict[str, str]:
    """Return the digest of each of an entry's data sets and models beside the evaluated one.

    Where the same texts came from ("sha256:... (local: ...)") makes no difference. How many prompts they gave ("prompts
    of ...") follows from texts, protocol and tokenizer, and is not known of generations that were removed.
    """
    of_names = {}
    for name, digest in entry.provenance.data.items():
        if not name.startswith("prompts of "):
            of_names[name] = digest.partition(" ")[0]
    return of_names


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
    other_tasks = a.protocols.keys() != b.protocols.keys()
    if other_tasks:
        sides = []
        for entry in (a, b):
            tasks = sorted(entry.protocols, key=lambda task: task in a.protocols and task in b.protocols)
            sides.append(listed(tasks, MOST_NAMED) or "none")
        reasons.append(f"other tasks: {' / '.join(sides)}")
    protocols = {}
    for name in dict.fromkeys([*left, *right]):
        absent = name not in left or name not in right
        of_task = name.startswith(("protocol of ", "data of "))
        of_training = name.startswith(("data of ", "recipe.")) and name not in of_untrained
        if (other_tasks and absent and of_task) or (one_untrained and of_training):
            continue  # follows from the tasks, or from the training
        if not absent and left[name] == right[name]:
            continue
        if name == "model":
            why = ", whose weights or tokenizers differ" if a.model.name == b.model.name else ""
            reasons.append(f"model: {_model(a)} and {_model(b)}{why}")
        elif name.startswith("protocol of "):
            task = name.removeprefix("protocol of ")
            protocols.setdefault(_other_rules(a, b, task), []).append(task)
        else:
            mine, others = _short(str(left.get(name, "none"))), _short(str(right.get(name, "none")))
            reasons.append(f"{name}: {mine} and {others}")
    # Tasks whose rules differ alike stand together.
    for text, tasks in protocols.items():
        reasons.append(f"protocol of {listed(tasks, MOST_NAMED)}: {text}")
    return reasons


def groups(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Split entries into those that may be ranked together, in the order given.

    A `pretrained` row joins every group that it is comparable with.
    """
    by_key = {}
    untrained = []
    for entry in entries:
        if entry.untrained:
            untrained.append(entry)
        else:
            by_key.setdefault(comparison_key(entry), []).append(entry)
    of_model = {}
    for group in by_key.values():
        of_model.setdefault(_suite_and_model(group[0]), []).append(group)
    alone = {}
    for entry in untrained:
        near = of_model.get(_suite_and_model(entry), [])  # with any other, `differences` names at least these
        hosts = [group for group in near if not differences(entry, group[0])]
        for group in hosts or [alone.setdefault(comparison_key(entry), [])]:
            group.append(entry)
    return [*by_key.values(), *alone.values()]


def _suite_and_model(entry: Entry) -> tuple[str, str]:
    return str(entry.suite), entry.model.revision or entry.model.source


def older_code(group: Entries, own: Collection[str] = ()) -> frozenset[str]:
    """Return the ids of the rows of a comparable group whose objective was recorded again with newer code.

    Rows of the same objective and parameters have the same code if its version and source digest are the same; a row
    without a recorded digest is left out. Where there are several codes, that of the newest row counts, or of the
    newest among `own` (the ids of the run that is being shown: a run of just now is never "older").
    Older code is shown, and neither gets nor prevents a star or a place; nor can it be a baseline.
    """
    by_label = {}
    for entry in group:
        if entry.objective.source_sha256:
            by_label.setdefault(entry.objective.label, []).append(entry)
    older = set()
    for rows in by_label.values():
        newest = max(rows, key=lambda e: (e.id in own, e.provenance.created, e.id))
        code = newest.objective.version, newest.objective.source_sha256
        older |= {e.id for e in rows if (e.objective.version, e.objective.source_sha256) != code}
    return frozenset(older)


def changed_rules(entry: Entry, tasks: Sequence[str] = ()) -> str:
    """Return the rules of an entry's tasks (those named, or all) that differ from the protocols of their names.

    In words, first the rules that all tasks share: "sampling.method=greedy, limit=40"; "" where there are none.
    """
    of_tasks = {task: entry.changes.get(task, {}) for task in tasks or entry.protocols}
    common = dict(next(iter(of_tasks.values()), {}))
    for rules in of_tasks.values():
        for name in _other_than(common, rules):
            del common[name]
    by_words = {}
    for task, rules in of_tasks.items():
        by_words.setdefault(_words(_other_than(rules, common)), []).append(task)
    parts = [_words(common)]
    for own, names in by_words.items():
        parts.append(own and f"{listed(names, MOST_RULES)}: {own}")
    return "; ".join(filter(None, parts))


def _other_rules(a: Entry, b: Entry, task: str) -> str:
    """Return how a task's protocols differ: by recorded rules or, where none does, by their ids."""
    sides = []
    for entry, other in ((a, b), (b, a)):
        rules, others, protocol = entry.changes.get(task, {}), other.changes.get(task, {}), entry.protocols[task]
        if rules != others:
            protocol = protocol.partition("@")[0]
        own = _words(_other_than(rules, others))
        sides.append(f"{protocol} with {own}" if own else protocol)
    return " and ".join(sides)


def _words(rules: Rules) -> str:
    """Return rules as --set takes them, after one another."""
    texts = []
    for name, value in rules.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(text) > LONGEST:
            text = text[:LONGEST] + "…"
        texts.append(f"{name}={text}")
    return listed(texts, MOST_RULES)


def _other_than(rules: Rules, others: Rules) -> dict[str, Any]:
    """Return the rules that `others` has not, or with another value."""
    own = {}
    for name, value in rules.items():
        if name not in others or others[name] != value:
            own[name] = value
    return own


def _model(entry: Entry) -> str:
    return f"{entry.model.name} ({_short(entry.model.revision or entry.model.source)})"


def _short(text: str) -> str:
    return text[:13] if text.startswith("sha256:") else text
