"""Words on the command line that no option and no argument takes, and what was probably meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.core.errors import ConfigError


def refuse_strays(context: Any, given: Sequence[str]) -> None:
    """Raise ConfigError where words are left over from `given`, all that stands behind the context's command."""
    if context.args:
        called = f"`{_called(context)}`"
        meant = _meant(context, given) or f"{called[:-1]} --help` shows what it takes."
        raise ConfigError(f"{called} has no place for {' '.join(context.args)}; {meant}")


def _called(context: Any) -> str:
    """Return a command's names; the outermost context is the program, which may have been started as a module."""
    return "emobench" if context.parent is None else f"{_called(context.parent)} {context.info_name}"


def _meant(context: Any, given: Sequence[str]) -> str | None:
    from emobench.registry import objective_names  # reads what is installed, which takes a moment

    stray = context.args[0]
    for option, key, word in zip(given, given[1:], given[2:], strict=False):
        if (option, word) == ("--set", stray) and "=" not in key:
            return f"write --set KEY=VALUE: --set {key}={stray}."
    takes_objectives = any("--objective" in parameter.opts for parameter in context.command.params)
    return f"write --objective {stray}." if takes_objectives and stray in objective_names() else None
