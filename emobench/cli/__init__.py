"""The command line: one file per command group. Nothing here imports torch before a command needs it."""

from __future__ import annotations

import errno
import gc
import os
import sys

import typer

from emobench.cli.commands import lazy_group
from emobench.cli.terminal.streams import EXIT_CODE, explain_interrupt, fail, print_text, standard_streams
from emobench.core.errors import ConfigError, EmobenchError
from emobench.core.extras import missing_packages_explained
from emobench.runs.signals import signals_interrupt, was_interrupted

COMMANDS = {
    "run": ("run:run", "Train with each objective, evaluate, and record."),
    "train": ("run:train", "Train only, and print the folder of each model."),
    "evaluate": ("run:evaluate", "Evaluate models without training them."),
    "prompts": ("show.answers:prompts", "Show the prompts of a classification task, token by token."),
    "answers": ("show.answers:answers", "Show the answers behind an entry's accuracies."),
    "samples": ("show.samples:samples", "Show generated texts and human texts side by side."),
    "figures": ("show.samples:figures", "Draw the figures of entries."),
    "compare": ("compare:compare", "Compare entries: difference, 95 % interval, p, verdict."),
    "plan": ("plan:plan", "Plan the seeds and examples that show a difference, with their cost."),
    "judge": ("judge:judge", "Judge the kept responses of entries against each other."),
    "curves": ("show.curves:curves", "Show training curves."),
    "rerun": ("rerun:rerun", "Run an entry again, and compare its numbers."),
    "reproduce": ("reproduce:reproduce", "Repeat a table or figure of a paper."),
    "sample-corpus": ("reproduce:sample_corpus", "Sample a corpus from a model, to be used with --data-dir."),
    "sweep": ("sweep:app", "Sweeps over models, objectives, settings and seeds: run, status."),
    "stage": ("run:stage", "Stages of a run: run one by its key."),
    "runs": ("runs:app", "Stages on disk: list, prune."),
    "doctor": ("doctor:doctor", "Show what this machine can run, and which packages are missing."),
    "leaderboard": ("leaderboard:app", "Recorded results: show, site, view, export, verify, pack, push, pull, import."),
    "objectives": ("", "Training objectives: list, show, check, bench, new."),
    "kinds": ("", "Kinds of task: list, show, check, new."),
    "retrievers": ("", "Retrievers of shots: list, show, check, new."),
    "metrics": ("", "Metrics of generated texts: list, show, check, new."),
    "judges": ("", "Judges of responses: list, show, check, score, new."),
    "tasks": ("listings:tasks", "Evaluation tasks: list, show, new, export."),
    "suites": ("listings:suites", "Suites of trainings and tasks: list, show."),
    "settings": ("listings:settings", "Show the settings of --set: type, default, and meaning with its unit."),
    "models": ("listings:models", "Models: list, path, convert."),
}
"""Each command's name, its `module:attribute` in this package, and the first sentence of its help.

Families of plugins have no attribute: all of them have the commands of `families`.
"""

_RIGHTS = "Permission denied. Change its rights or a parent folder's (ls -ld shows them), or give another path."
UNUSABLE = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENAMETOOLONG: "A name may have 255 bytes, and a path 4,095. Give another path.",
}
"""What to do about a path, by the error of the system."""


def _family(plural: str) -> typer.Typer | None:
    from emobench.cli.families import commands

    return commands(plural)


def _foreign_families() -> list[str]:
    """Return the families that strangers' kinds declare. No kind is loaded if all of them are built in."""
    from importlib.metadata import entry_points

    if all(point.value.startswith("emobench.") for point in entry_points(group="emobench.kinds")):
        return []
    from emobench.registry import families

    return [plural for plural in families() if plural not in COMMANDS]


app = typer.Typer(
    name="emobench",
    help="Does this training objective make a language model better, by how much, and are we sure?",
    cls=lazy_group(__name__, COMMANDS, _family, _foreign_families),
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

    A path that cannot be used, which may be any that was given or one inside of it, is a user error, too.
    """
    # Threads that spin while they wait make a small model ten times slower where another process uses a core
    # (measured). OpenMP reads this when torch is imported, which is later.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # While libraries are imported there is no garbage; looking for it as often as by default takes a tenth of the time.
    gc.set_threshold(10_000)
    try:
        with signals_interrupt(), standard_streams(), missing_packages_explained():
            app(prog_name="emobench")  # also where Python started it as a module
    except (KeyboardInterrupt, Exception) as error:
        if was_interrupted(error):
            sys.exit(explain_interrupt())
        if isinstance(error, EmobenchError):
            sys.exit(fail(error))
        if isinstance(error, OSError) and error.filename is not None and error.errno in UNUSABLE:
            sys.exit(fail(ConfigError(f"{os.fsdecode(error.filename)} cannot be used: {UNUSABLE[error.errno]}")))
        raise
    except SystemExit as stopped:
        if stopped.code == EXIT_CODE:  # Typer's own answer to Ctrl-C, which prints nothing
            sys.exit(explain_interrupt())
        raise
