"""What a request changes in the rules of a kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emobench.core.errors import ConfigError
from emobench.kinds.interface import Kind
from emobench.runs.planning.request import Request


def rule_changes(request: Request, kind: Kind) -> dict[str, Any]:
    """Return what `--set` and `--limit` change in tasks of a kind: generation.mauve.seeds, and likewise mauve.seeds."""
    changes = dict(request.section(kind.name))
    for group in kind.groups:
        if given := request.section(group):
            within = changes.get(group, {})
            if not isinstance(within, Mapping) or within.keys() & given.keys():
                raise ConfigError(f"--set {group}.{min(given)} and --set {kind.name}.{group} are both given; keep one.")
            changes[group] = {**within, **given}
    kind.check_consent(changes, request.trust_remote_code)
    return changes if request.limit is None else {**changes, "limit": request.limit}
