"""A group of commands whose modules are imported when a command is called: `--help` imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from emobench.cli.help import Command


def lazy_group(
    package: str,
    commands: Mapping[str, tuple[str, str]],
    others: Callable[[str], typer.Typer | None] = lambda name: None,
    names: Callable[[], list[str]] = list,
) -> type[TyperGroup]:
    """Return a class for `typer.Typer(cls=...)`.

    `commands` gives each command's `module:attribute` in the package, and the first sentence of its help. An attribute
    is a function or a Typer group. `others` returns the group of a command without an attribute or outside of
    `commands`, by its name; `names` has those outside of `commands`.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            # Enough for the list of commands, for completion, and for what is suggested after a typing error.
            self.commands = {name: TyperCommand(name, help=summary) for name, (_, summary) in commands.items()}

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            command = super().get_command(ctx, cmd_name)
            if command is None:
                group = others(cmd_name)
                return group and TyperCommand(cmd_name, help=group.info.help)
            return command

        def list_commands(self, ctx: Any) -> list[str]:
            return [*super().list_commands(ctx), *names()]

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and self.load(str(name)), rest

        def load(self, name: str) -> Any:
            """Import a command."""
            module, _, attribute = commands[name][0].partition(":") if name in commands else ("", "", "")
            if module:
                return _command(name, getattr(importlib.import_module(f"{package}.{module}"), attribute))
            return _command(name, others(name))

    return LazyGroup


def _command(name: str, target: Any) -> Any:
    if isinstance(target, typer.Typer):
        target.rich_markup_mode = None  # as of the group above
        for registered in target.registered_commands:
            registered.cls = Command
        group = typer.main.get_command(target)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command, context_settings={"help_option_names": ["-h", "--help"]})(target)
    return typer.main.get_command(alone)
