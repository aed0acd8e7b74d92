"""The command line: one file per command group. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

import typer

from emobench.cli.answers import answers
from emobench.cli.compare import compare
from emobench.cli.console import (
    INTERRUPTED,
    fail,
    interrupted,
    print_text,
    stdout_for_json_alone,
    stopped_by_signals,
)
from emobench.cli.curves import curves
from emobench.cli.doctor import doctor
from emobench.cli.figures import figures
from emobench.cli.leaderboard import app as leaderboard
from emobench.cli.listings import models, suites, tasks
from emobench.cli.objectives import app as objectives
from emobench.cli.prompts import prompts
from emobench.cli.reproduce import reproduce
from emobench.cli.run import evaluate, run, train
from emobench.cli.sample_corpus import sample_corpus
from emobench.cli.samples import samples
from emobench.cli.streams import standard_streams
from emobench.errors import ConfigError, EmobenchError

app = typer.Typer(
    name="emobench",
    help="Does this training objective make a language model better, by how much, and are we sure?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
SHOWING = (prompts, answers, samples, figures, compare, curves)
"""Commands that show what the others made, or would."""
for command in (run, train, evaluate, *SHOWING, reproduce, sample_corpus, doctor):
    app.command()(command)
app.add_typer(leaderboard, name="leaderboard")
app.add_typer(objectives, name="objectives")
app.add_typer(tasks, name="tasks")
app.add_typer(suites, name="suites")
app.add_typer(models, name="models")


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        from emobench import __version__

        print_text(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line. An error of ours is a sentence on stderr and an exit code; any other is a bug.

    A path without the rights to it, which may be any that was given or one inside of it, is a user error, too.
    """
    # Threads that spin while they wait make a small model ten times slower where another process uses a core
    # (measured). OpenMP reads this when torch is imported, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        json_alone = stdout_for_json_alone() if "--json" in sys.argv[1:] else nullcontext()
        with stopped_by_signals(), standard_streams(), json_alone:
            app()
    except EmobenchError as error:
        sys.exit(fail(error))
    except PermissionError as error:
        if error.filename is None:
            raise
        sys.exit(fail(_without_rights(error)))
    except KeyboardInterrupt:
        sys.exit(interrupted())
    except SystemExit as stopped:
        if stopped.code == INTERRUPTED:  # Typer's own answer to Ctrl-C, which says nothing
            sys.exit(interrupted())
        raise


def _without_rights(error: PermissionError) -> ConfigError:
    place = os.fsdecode(error.filename)
    return ConfigError(
        f"{place} cannot be used: {error.strerror}. Change its rights, or those of a folder above it "
        "(ls -ld shows them), or give another path."
    )
