"""The list of commands says what each command says of itself, and reading it imports none of them."""

from __future__ import annotations

import subprocess
import sys

import typer

from emobench.cli import COMMANDS, app
from emobench.cli.lazy import load_commands


def test_the_summaries_are_those_of_the_commands() -> None:
    commands = load_commands(typer.main.get_command(app))
    assert {name: " ".join((command.help or "").split("\n\n")[0].split()) for name, command in commands.items()} == {
        name: summary for name, (_, summary) in COMMANDS.items()
    }


def test_help_imports_no_command() -> None:
    code = "import sys, contextlib\nfrom emobench.cli import app\n"
    code += "with contextlib.suppress(SystemExit): app(['--help'])\n"
    code += "print({'torch', 'numpy', 'rich', 'emobench.registry', 'emobench.cli.run'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
