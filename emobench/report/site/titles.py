"""What a page calls its groups: the model, its tasks where they differ, and of several groups what sets each apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from emobench.leaderboard.comparable import conditions
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean

LONGEST = 40
"""Letters of a value; where two are alike to this length, another fact tells their groups apart."""
NONE = "none"
UNTRAINED = "not trained"
TIERS = (("training", "tasks", "rule ", "recipe.name", "recipe."), ("protocols", "protocol of "), ("model",), ("",))
"""The beginnings of facts. What a person chose comes first; the digests that follow from it tell only what is left."""


def group_titles(firsts: Sequence[Entry]) -> list[str]:
    """Return a title for each group of one suite, given a row of each; no two are alike.

    Of several groups of one model the fewest facts are named that tell them apart: tasks, changed rules and settings of
    the recipe before protocols, and these before digests of data and weights. A value that most groups share is left
    out. A number is the last resort.
    """
    by_model: dict[str, list[int]] = defaultdict(list)
    for place, entry in enumerate(firsts):
        by_model[entry.model.name].append(place)
    titles = [""] * len(firsts)
    several = len({tuple(sorted(entry.protocols)) for entry in firsts}) > 1
    for model, places in by_model.items():
        words = _apart([firsts[place] for place in places], tasks=several)
        seen: dict[str, int] = defaultdict(int)
        for place, own in zip(places, words, strict=True):
            title = " · ".join(filter(None, [clean(model), own]))
            seen[title] += 1
            titles[place] = title if seen[title] == 1 else f"{title} · {seen[title]}"
    return titles


def _apart(entries: Sequence[Entry], *, tasks: bool) -> list[str]:
    """Return what sets each of some entries of one model apart; `tasks` are named first where a suite has several."""
    facts = [_facts(entry) for entry in entries]
    chosen = ["tasks"] if tasks else []
    keys = list(dict.fromkeys(key for own in facts for key in own))
    for tier in TIERS:
        own = sorted((key for key in keys if key.startswith(tier)), key=lambda key: _place(key, tier))
        while (best := _best(facts, chosen, own)) is not None:
            chosen.append(best)
    usual = {key: _usual(own.get(key, NONE) for own in facts) for key in chosen if key != "tasks"}
    return [_words(own, chosen, usual) for own in facts]


def _facts(entry: Entry) -> dict[str, str]:
    """Return what may set a group apart, under short names."""
    found = {"tasks": ", ".join(sorted(entry.protocols))}
    rules = [entry.changes.get(task, {}) for task in entry.protocols]
    for name in dict.fromkeys(name for of in rules for name in of):
        values = dict.fromkeys(str(of[name]) for of in rules if name in of)
        found[f"rule {name}"] = " or ".join(values)
    found["protocols"] = ", ".join(dict.fromkeys(name.partition("@")[0] for name in entry.protocols.values()))
    found |= {name: str(value) for name, value in conditions(entry).items() if name != "suite"}
    if entry.untrained:
        found = {"training": UNTRAINED} | {k: v for k, v in found.items() if not k.startswith("recipe.")}
    return {name: _short(value) for name, value in found.items()}


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


def _place(key: str, tier: Sequence[str]) -> tuple[int, str]:
    """Return where a fact stands among those of its tier that tell as much."""
    return next(place for place, start in enumerate(tier) if key.startswith(start)), key


def _usual(values: Iterable[str]) -> str | None:
    """Return the value that more than half of the groups have, if there is one."""
    counts = Counter(values)
    value, count = counts.most_common(1)[0]
    return value if 2 * count > counts.total() else None


def _words(own: Mapping[str, str], chosen: Sequence[str], usual: Mapping[str, str | None]) -> str:
    untrained = "training" in own
    keys = [key for key in chosen if key != "training" and not (untrained and key.startswith("recipe."))]
    told = [_word(key, own.get(key, NONE), usual.get(key)) for key in keys if own.get(key, NONE) != usual.get(key)]
    return ", ".join(filter(None, [UNTRAINED if untrained else "", *told]))


def _word(key: str, value: str, usual: str | None) -> str:
    name = key.removeprefix("recipe.").removeprefix("rule ")
    if key.startswith("rule ") and value == NONE:
        return f"default {name}" if usual else ""
    if key in ("tasks", "protocols", "recipe.name") or key.startswith("protocol of "):
        return value
    if key == "model":
        return f"weights {value}"
    return f"{name}={value}" if key.startswith(("recipe.", "rule ")) else f"{key}: {value}"
