"""The newest comparable group: what commands show unless more is requested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from emobench.leaderboard.comparable import groups
from emobench.leaderboard.entry import Entries, Entry


def newest_first(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Return the groups of entries that may be ranked together, that of the newest trained entry first."""
    return sorted(groups(entries), key=_newest, reverse=True)


def _newest(group: Entries) -> tuple[bool, str]:
    trained = [entry for entry in group if not entry.untrained]
    return bool(trained), max(entry.provenance.created for entry in trained or group)


def newest_common(choices: Sequence[Entries]) -> tuple[list[Entries], list[list[Entry]]]:
    """Keep, of each choice, the entries of the newest group that has an entry of every choice.

    Return the choices, and the chosen entries of each older group that has one of every choice, too. Choices without a
    common group, and single entries, are returned as they are.
    """
    by_id = {entry.id: entry for choice in choices for entry in choice}
    several = any(len(choice) > 1 for choice in choices)
    common = []
    for group in newest_first(by_id.values()) if several else ():
        ids = {entry.id for entry in group}
        kept = []
        for choice in choices:
            kept.append([entry for entry in choice if entry.id in ids])
        if len(group) > 1 and all(kept):
            common.append(kept)
    if not common:
        return list(choices), []
    older = []
    for kept in common[1:]:
        older.append(list(chain.from_iterable(kept)))
    return common[0], older


def query_of(group: Entries, shown: Entry) -> str:
    """Return words of `compare` that mean a group, and not that of the entry that is shown."""
    first = group[0]
    if first.suite.name != shown.suite.name:
        return f"suite={first.suite.name}"
    if first.model.name != shown.model.name:
        return f"model={first.model.name}"
    return " ".join(dict.fromkeys(entry.id[:6] for entry in group))


def older_groups(count: int, how: str) -> str:
    """Return a sentence on groups that are not shown, and `how` to see them; empty if there is none."""
    if not count:
        return ""
    if count == 1:
        return f"1 older group is not shown: {how}."
    return f"{count:,} older groups are not shown: {how}."
