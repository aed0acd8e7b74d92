"""`--help` of a command: options in groups, names in one piece at 80 columns, and an example that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from shown import inner_commands

from emobench.cli import app
from emobench.cli.commands import EXAMPLES, FEW, GROUPS, WHAT


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = inner_commands(command)
    for name, one in inner.items():
        yield from walk(one, (*path, name))
    if not inner:
        yield " ".join(path), command


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return dict(walk(typer.main.get_command(app)))


def helped(command: Any, path: str, width: int) -> str:
    context = command.context_class(command, info_name=f"emobench {path}", terminal_width=width)
    return command.get_help(context)


def test_every_command_has_an_example_that_it_takes(commands: dict[str, Any]) -> None:
    assert EXAMPLES.keys() <= commands.keys()
    for path, command in commands.items():
        example = command.epilog or EXAMPLES[path]
        words = shlex.split(example)
        given = ["emobench", *path.split()]
        assert words[: len(given)] == given
        command.make_context(path, words[len(given) :])  # raises for an option that is unknown or missing
        assert helped(command, path, 80).rstrip().endswith(f"Example:\n  {example}")
        assert len(example) <= 78


@pytest.mark.parametrize("width", [80, 120])
def test_options_are_in_groups_with_names_in_one_piece(commands: dict[str, Any], width: int) -> None:
    for path, command in commands.items():
        shown = helped(command, path, width)
        assert max(map(len, shown.splitlines())) <= width
        options = [p for p in command.params if p.param_type_name == "option"]
        for option in options:
            assert re.search(rf"^  (?:-\w, )?{option.opts[0]}\b", shown, re.MULTILINE), (path, option.opts)
        titles = re.findall(r"^(\w+):$", shown, re.MULTILINE)
        few = len(options) + 1 <= FEW
        assert ("Options" in titles) == few, path
        assert few or "Output" in titles


def test_groups_name_options_that_there_are(commands: dict[str, Any]) -> None:
    known = {name for command in commands.values() for p in command.params for name in p.opts}
    assert {name for members in GROUPS.values() for name in members} <= known


def test_the_groups_of_a_run(commands: dict[str, Any]) -> None:
    shown = helped(commands["run"], "run", 80)
    groups = {part.partition(":")[0]: part for part in re.split(r"\n\n(?=\w+:\n)", shown)}
    assert list(groups)[1:] == ["Arguments", WHAT, *GROUPS, "Example"]
    assert all(f"  {name} " in groups[WHAT] for name in ("--objective", "--model", "--suite", "--seed"))
    assert "--set " in groups["How"]
    assert "--runs " in groups["Where"]
    assert "--dry-run" in groups["Output"]
