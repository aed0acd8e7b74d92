"""A group of commands whose modules are imported when a command is called: `--help` imports none of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, from `module:attribute`; an attribute is a function or a Typer group."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            module, _, attribute = self._places[name].partition(":")
            self._loaded[name] = _command(name, getattr(importlib.import_module(module), attribute))
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._places.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._places[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, found: Any) -> Any:
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None  # as of the group above
        group = typer.main.get_command(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, context_settings={"help_option_names": ["-h", "--help"]})(found)
    return typer.main.get_command(alone)


def lazy_group(commands: Mapping[str, tuple[str, str]]) -> type[TyperGroup]:
    """Return a class for `typer.Typer(cls=...)`, from each command's `module:attribute` and first sentence."""

    class LazyGroup(TyperGroup):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.commands = LazyCommands({name: place for name, (place, _) in commands.items()})

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            longest = formatter.width - 6 - max(map(len, commands))
            with formatter.section("Commands"):
                formatter.write_dl(
                    [
                        (name, TyperCommand(name, help=summary).get_short_help_str(longest))
                        for name, (_, summary) in commands.items()
                    ]
                )

    return LazyGroup
