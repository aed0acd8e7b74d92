"""`emobench objectives check`: the contract of objectives, and of losses of other programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from emobench.cli import options
from emobench.cli.families import CALL, report_checks
from emobench.core.errors import ConfigError
from emobench.registry import load_objective
from emobench.registry.families import load_loss


def check(
    names: Annotated[
        list[str], typer.Argument(help=CALL + " A loss of another program is MODULE:NAME or ./file.py:name.")
    ],
    like: Annotated[
        str | None,
        typer.Option(help='Compare losses of other programs with this objective, such as "eaft" or ./my_loss.py:Mine.'),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="The first arguments of a loss of another program, if their names do not tell: logits (logits, "
            "labels), outputs (outputs, labels), or linear (weight, hidden, labels)."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Check that training objectives, or losses of other programs, keep the contract.

    It prints one line for each check. A failure comes with its usual cause. A loss of another program is a function of
    logits and labels, a `compute_loss_func` of transformers' Trainer, or a module of head, hidden states and labels.
    """
    plugins: dict[str, Any] = {}
    for name in names:  # all are loaded first, so that an unknown name is reported before the checks
        function = load_loss(name)
        if function is None:
            if like or form:
                option = "--like" if like else "--form"
                raise ConfigError(f"{option} is for losses of other programs; '{name}' is an objective.")
            plugins[name] = load_objective(name).objective
            continue
        from emobench.testing.foreign import foreign_loss

        plugins[name] = foreign_loss(function, name, like=like, form=form)
    report_checks("objective", plugins, json)
