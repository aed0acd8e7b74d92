"""The command line: one file per command group. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import os
import sys

import typer

from emobench.cli.console import fail, print_text
from emobench.cli.interrupts import EXIT_CODE, explain_interrupt, signals_interrupt
from emobench.cli.lazy import lazy_group
from emobench.cli.streams import standard_streams
from emobench.errors import ConfigError, EmobenchError

COMMANDS = {
    "run": ("emobench.cli.run:run", "Train with each objective, evaluate, and record."),
    "train": ("emobench.cli.run:train", "Train only, and print the folder of each model."),
    "evaluate": (
        "emobench.cli.run:evaluate",
        "Evaluate models without training them.",
    ),
    "prompts": (
        "emobench.cli.show.prompts:prompts",
        "Show the prompts of a classification task, token by token.",
    ),
    "answers": (
        "emobench.cli.show.answers:answers",
        "Show the answers behind an entry's accuracies.",
    ),
    "samples": (
        "emobench.cli.show.samples:samples",
        "Show generated texts and human texts side by side.",
    ),
    "figures": (
        "emobench.cli.show.figures:figures",
        "Draw the figures of entries.",
    ),
    "compare": (
        "emobench.cli.compare:compare",
        "Compare entries: difference, 95 % interval, p, verdict.",
    ),
    "curves": (
        "emobench.cli.show.curves:curves",
        "Show training curves.",
    ),
    "reproduce": (
        "emobench.cli.reproduce:reproduce",
        "Repeat a table or figure of a paper.",
    ),
    "sample-corpus": (
        "emobench.cli.sample_corpus:sample_corpus",
        "Sample a corpus from a model, to be used with --data-dir.",
    ),
    "stage": ("emobench.cli.stage:app", "Stages of a run: run one by its key."),
    "doctor": ("emobench.cli.doctor:doctor", "Show what this machine can run, and what is missing."),
    "leaderboard": ("emobench.cli.leaderboard:app", "Recorded results: show, site, export, import, verify."),
    "objectives": ("emobench.cli.objectives:app", "Training objectives: list, show, check, bench, new."),
    "tasks": ("emobench.cli.listings:tasks", "Evaluation tasks: list, show, export."),
    "suites": ("emobench.cli.listings:suites", "Suites of trainings and tasks: list, show."),
    "models": ("emobench.cli.listings:models", "Models: list, convert."),
}
"""Each command's name, where it is, and the first sentence of its help."""

app = typer.Typer(
    name="emobench",
    help="Does this training objective make a language model better, by how much, and are we sure?",
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
        with signals_interrupt(), standard_streams():
            app()
    except EmobenchError as error:
        sys.exit(fail(error))
    except PermissionError as error:
        if error.filename is None:
            raise
        sys.exit(fail(_without_rights(error)))
    except KeyboardInterrupt:
        sys.exit(explain_interrupt())
    except SystemExit as stopped:
        if stopped.code == EXIT_CODE:  # Typer's own answer to Ctrl-C, which prints nothing
            sys.exit(explain_interrupt())
        raise


def _without_rights(error: PermissionError) -> ConfigError:
    place = os.fsdecode(error.filename)
    return ConfigError(
        f"{place} cannot be used: {error.strerror}. Change its rights, or those of a folder above it "
        "(ls -ld shows them), or give another path."
    )
