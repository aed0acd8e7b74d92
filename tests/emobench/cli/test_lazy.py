"""The list of commands says what each command says of itself, and reading it imports none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from shown import inner_commands

from emobench.cli import COMMANDS, app


def test_the_summaries_are_those_of_the_commands() -> None:
    commands = inner_commands(typer.main.get_command(app))
    assert {name: " ".join((command.help or "").split("\n\n")[0].split()) for name, command in commands.items()} == {
        name: summary for name, (_, summary) in COMMANDS.items()
    }


def last_line(code: str) -> str:
    """Return the last line that a program prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_help_imports_no_command() -> None:
    code = "import sys, contextlib\nfrom emobench.cli import app\n"
    code += "with contextlib.suppress(SystemExit): app(['--help'])\n"
    code += "print({'torch', 'numpy', 'rich', 'emobench.registry', 'emobench.cli.run'} & sys.modules.keys())"
    assert last_line(code) == "set()"


def test_no_command_imports_torch_before_it_works() -> None:
    code = "import sys, typer\nfrom emobench.cli import app\ngroup = typer.main.get_command(app)\n"
    code += "loaded = [group.load(name) for name in group.commands]\n"
    code += "print({'torch', 'transformers', 'scipy'} & sys.modules.keys())"
    assert last_line(code) == "set()"


def test_imports_are_not_searched_for_garbage() -> None:
    code = "import contextlib, gc, sys\nfrom emobench.cli import main\nwhole = []\n"
    code += "gc.callbacks.append(lambda phase, info: whole.append(info) if info['generation'] == 2 else None)\n"
    code += "sys.argv = ['emobench', 'objectives', 'list']\n"
    code += "with contextlib.suppress(SystemExit): main()\n"
    code += "import torch\nprint(len(whole) <= 2)"  # the start and the end of one; 10 by default
    assert last_line(code) == "True"


@pytest.mark.parametrize(
    ("words", "suite", "absent"),
    [
        (["--objective", "emo", "--model", "llama-7b", "--suite", "nlu"], "nlu", {"transformers"}),
        (["--objective", "emo", "--model", "llama-7b", "--suite", "lm-quick"], "lm-quick", {"transformers"}),
        ([], "oracle-language", {"transformers.modeling_utils", "torch._dynamo"}),
        (["--suite", "nlu-tiny"], "nlu-tiny", {"transformers.modeling_utils", "torch._dynamo"}),
    ],
)
def test_a_dry_run_without_the_model_imports_no_models_code(
    tmp_path: Path, words: list[str], suite: str, absent: set[str]
) -> None:
    """The models that the harness makes have a tokenizer of transformers before they are made."""
    code = "import sys, contextlib\nfrom emobench.cli import app\n"
    code += f"with contextlib.suppress(SystemExit): app({['run', *words, '--dry-run', '--quiet']})\n"
    code += f"print({absent | {'scipy', 'datasets', 'sentence_transformers'}} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path)},
    )
    assert suite in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"
