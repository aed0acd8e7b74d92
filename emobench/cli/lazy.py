"""A group of commands whose modules are imported when a command is called: `--help` imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from emobench.cli.help import Command


def lazy_group(package: str, commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """Return a class for `typer.Typer(cls=...)`.

    `commands` gives each command's `module:attribute` in the package, and the first sentence of its help. An attribute
    is a function or a Typer group.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            # Enough for the list of commands, for completion, and for what is suggested after a typing error.
            self.commands = {name: TyperCommand(name, help=summary) for name, (_, summary) in commands.items()}

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and self.load(str(name)), rest

        def load(self, name: str) -> Any:
            module, _, attribute = commands[name][0].partition(":")
            return _command(name, getattr(importlib.import_module(f"{package}.{module}"), attribute))

    return LazyGroup


def load_commands(group: Any) -> dict[str, Any]:
    """Import the commands of a group, and return them by name; a command that is not a group has none."""
    commands = getattr(group, "commands", {})
    return {name: group.load(name) if hasattr(group, "load") else command for name, command in commands.items()}


def _command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None  # as of the group above
        for registered in found.registered_commands:
            registered.cls = Command
        group = typer.main.get_command(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=Command, context_settings={"help_option_names": ["-h", "--help"]})(found)
    return typer.main.get_command(alone)
