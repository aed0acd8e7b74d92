"""Checks of any objective, except of its loss: documentation, setup, parameters, state."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
from abc import ABC
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from emobench.core.errors import ConfigError
from emobench.objectives import ModelObjective, Objective
from emobench.testing import model_checks
from emobench.testing.kit import Broken, Skipped, check
from emobench.testing.subject import CheckedObjective

EQUATION = re.compile(r"[-+*/^=].*\b\w?[a-z]?(log|q|p|z|MLE|loss)|\b(log|exp|sum|max|KL|H)\b ?[(\w]")
SOURCE = re.compile(
    r"https?://|arxiv|et al\b|\b(19|20)\d\d\b|\bEq\. ?\d|\b(paper|repository|package)\b"
    r"|(?i:\bmine\b|(?<!its\s)(?<!their\s)(?<!'s\s)(?<!s'\s)\bown\b)"
)
LIBRARY = "emobench.objectives."
INTERFACES = (LIBRARY, "emobench.kinds.generation.metric", "emobench.kinds.instruct.judging.judge")
STEPS = 3


@check(
    "Write the equation in the class's docstring, such as -log q_t, and its source: a paper with its year, an "
    'address, or "Own."',
)
def documentation(subject: CheckedObjective) -> None:
    """The docstring of the class or its module has an equation, and a source."""
    _skip_combinations(subject)
    written = "\n".join(docstrings(type(subject.objective)))
    if not EQUATION.search(written):
        raise Broken("its docstring shows no equation" if written else "it has no docstring")
    if not SOURCE.search(written):
        raise Broken("its docstring names no source")


def docstrings(cls: type) -> list[str]:
    """Return the docstrings of the class, of its bases outside the library, and of its module."""
    own = [c for c in cls.__mro__ if c not in (object, ABC) and not c.__module__.startswith(INTERFACES)]
    # Without a docstring, dataclasses insert the signature.
    texts = [c.__dict__.get("__doc__") or "" for c in own if not (c.__doc__ or "").startswith(f"{c.__name__}(")]
    module = inspect.getmodule(cls)
    return [inspect.cleandoc(text) for text in (*texts, (module and module.__doc__) or "") if text]


@check(
    "Return the names of the models that `setup` reads from the property `reads`: they belong to a run's key. Draw "
    "random numbers from a generator with a seed of its own; a resume compares the frozen state's digest.",
    gate=True,
)
def setup(subject: CheckedObjective) -> None:
    """`setup` runs, reads only models that `reads` names, and makes the same frozen state each time."""
    (one, context), (two, _) = subject.fresh(), subject.fresh()
    for name in sorted(context.read - set(subject.objective.reads)):
        raise Broken(f"setup reads the model '{name}', which `reads` does not name")
    first, second = one.frozen_state(), two.frozen_state()
    if first.keys() != second.keys() or not all(torch.equal(v, second[n]) for n, v in first.items()):
        raise Broken("setup twice makes two frozen states")


@check(
    "What changes during training (in `begin_step`) belongs into `state()` as tensors, and `load_state` restores "
    "it; or compute it from the step alone.",
)
def state(subject: CheckedObjective) -> None:
    """What `state` returns is enough to go on after a resume, with the same losses."""
    trained, context = subject.fresh()
    for step in range(STEPS):
        trained.begin_step(step, context.total_steps)
        losses(subject, trained)
    kept = {name: value.clone() for name, value in trained.state().items()}
    resumed, _ = subject.fresh()
    if kept:
        resumed.load_state(kept)
    for name, value in resumed.state().items():
        if name not in kept or not torch.equal(value, kept[name]):
            raise Broken(f"load_state does not take back '{name}' of state()")
    for objective in (trained, resumed):
        objective.begin_step(STEPS, context.total_steps)
    if not torch.equal(losses(subject, trained), losses(subject, resumed)):
        raise Broken(f"after {STEPS} steps its losses and those of a resumed copy differ")


@check(
    "Call super().__post_init__() where you override it; give `emobench.param` the range in which the formula has "
    "a value, or treat its ends apart: 0/0 and log 0 stand there.",
)
def parameters(subject: CheckedObjective) -> None:
    """Defaults are allowed, what is out of range is refused, and the loss is finite at both ends."""
    fields = {f.name: f for f in dataclasses.fields(subject.objective)}  # type: ignore[arg-type]
    if not fields:
        raise Skipped("it has no parameters")
    _skip_combinations(subject)
    cls = type(subject.objective)
    required = {name: subject.objective.params[name] for name, f in fields.items() if f.default is dataclasses.MISSING}
    _build(cls, required, "its defaults are refused")
    for name, field in fields.items():
        for value in _outside(field.metadata, subject.objective.params[name]):
            with contextlib.suppress(ConfigError):
                cls(**{**subject.objective.params, name: value})
                raise Broken(f"the value {name}={value} is out of range, and not refused")
        for value in _ends(field.metadata):
            words = f"{name}={value}, an end of its range,"
            objective = _build(cls, {**subject.objective.params, name: value}, f"{words} is refused")
            if not torch.isfinite(losses(subject, subject.fresh(objective)[0])).all():
                raise Broken(f"with {words} its loss is not finite")


def losses(subject: CheckedObjective, objective: Objective) -> Tensor:
    """Return the losses of the tokens or units of a subject's batch. The objective must be set up."""
    if isinstance(objective, ModelObjective):
        return model_checks.losses(subject, objective)
    return subject.run(objective=objective).loss_N


def _skip_combinations(subject: CheckedObjective) -> None:
    if type(subject.objective).__module__.startswith(LIBRARY):
        raise Skipped("it is made of other objectives: check them")


def _build(cls: type[Objective], values: Mapping[str, Any], words: str) -> Objective:
    try:
        return cls(**values)
    except ConfigError as error:
        raise Broken(f"{words}: {str(error).rstrip('.')}") from None


def _ends(rules: Mapping[str, Any]) -> Iterator[Any]:
    yield from (rules[end] for end in ("low", "high") if rules.get(end) is not None)
    yield from rules.get("choices", ())


def _outside(rules: Mapping[str, Any], value: object) -> Iterator[Any]:
    if isinstance(value, float):
        yield math.nan
    if rules.get("low") is not None:
        yield type(rules["low"])(rules["low"] - 1)
    if rules.get("high") is not None:
        yield type(rules["high"])(rules["high"] + 1)
