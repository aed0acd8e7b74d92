"""What a page calls its groups: the model, and of several groups of a model what sets each apart, in few words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from emobench.leaderboard.schema.comparable import changed_rules, conditions, shared_rules
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.labels import clean

LONGEST = 40
"""Letters of a value; where two are alike to this length, another fact tells their groups apart."""
NONE = "none"
UNTRAINED = "not trained"


def group_titles(firsts: Sequence[Entry]) -> list[str]:
    """Return a title for each group of one suite, given a row of each; no two are alike.

    Of several groups of one model the fewest facts are named that tell them apart: changed rules and settings of the
    recipe before protocols, and these before digests of data and weights. A number is the last resort.
    """
    by_model: dict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(firsts):
        by_model[entry.model.name].append(place)
    titles = [""] * len(firsts)
    for model, places in by_model.items():
        words = _apart([firsts[place] for place in places])
        seen: dict[str, int] = defaultdict(int)
        for place, own in zip(places, words, strict=True):
            title = " · ".join(filter(None, [clean(model), own]))
            seen[title] += 1
            titles[place] = title if seen[title] == 1 else f"{title} · {seen[title]}"
    return titles


def _apart(entries: Sequence[Entry]) -> list[str]:
    """Return what sets each of some entries of one model apart from the others; "" for one that needs nothing."""
    if len(entries) == 1:
        return [""]
    facts = [_facts(entry) for entry in entries]
    common = shared_rules([entry.changes.get(task, {}) for entry in entries for task in entry.protocols])
    for entry, own in zip(entries, facts, strict=True):
        own["rules"] = changed_rules(entry, leaving=common) or NONE
    keys = sorted({key for own in facts for key in own}, key=_place)
    chosen: list[str] = []
    while (best := _best(facts, chosen, keys)) is not None:
        chosen.append(best)
    return [_words(own, chosen) for own in facts]


def _facts(entry: Entry) -> dict[str, str]:
    """Return what may set a group apart, under short names."""
    if entry.untrained:
        return {"training": UNTRAINED} | {k: v for k, v in _named(entry).items() if not k.startswith("recipe.")}
    return _named(entry)


def _named(entry: Entry) -> dict[str, str]:
    return {name: _short(str(value)) for name, value in conditions(entry).items() if name != "suite"}


def _short(value: str) -> str:
    text = clean(value.removeprefix("sha256:")[:6] if value.startswith("sha256:") else value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _best(facts: Sequence[Mapping[str, str]], chosen: Sequence[str], keys: Sequence[str]) -> str | None:
    """Return the fact that tells most groups apart, beside those chosen; the first of equals, None if none helps."""
    now = _kinds(facts, chosen)
    found = {key: _kinds(facts, [*chosen, key]) for key in keys if key not in chosen}
    best = max(found, key=found.__getitem__, default=None)
    return best if best is not None and now < len(facts) and found[best] > now else None


def _kinds(facts: Sequence[Mapping[str, str]], keys: Sequence[str]) -> int:
    return len({tuple(own.get(key, NONE) for key in keys) for own in facts})


def _place(key: str) -> tuple[int, str]:
    """Return where a fact stands among those that tell as much: what a person chose comes first."""
    order = ("training", "rules", "recipe.name", "recipe.", "protocol of ", "model", "data of ")
    return next((place for place, start in enumerate(order) if key.startswith(start)), len(order)), key


def _words(own: Mapping[str, str], chosen: Sequence[str]) -> str:
    untrained = "training" in own
    keys = [key for key in chosen if key != "training" and not (untrained and key.startswith("recipe."))]
    return ", ".join(filter(None, [UNTRAINED if untrained else "", *(_word(key, own.get(key, NONE)) for key in keys)]))


def _word(key: str, value: str) -> str:
    if key in ("rules", "recipe.name"):
        return "" if value == NONE else value
    if key == "model":
        return f"weights {value}"
    if key.startswith("protocol of "):
        return value
    return f"{key.removeprefix('recipe.')}={value}" if key.startswith("recipe.") else f"{key}: {value}"
