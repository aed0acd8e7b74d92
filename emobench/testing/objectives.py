"""The contract of objectives, and facts of their classes for `emobench objectives list` and `show`.

Checks are of the loss at its level, and of setup, parameters, state and documentation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from emobench.core.conformance import SOURCE, Broken, Check, Skipped, check, docstrings, require_source
from emobench.core.errors import ConfigError
from emobench.objectives import STATISTICS, ModelObjective, Objective, StatisticsObjective
from emobench.testing import model_checks, token_checks
from emobench.testing.subject import CheckedObjective, level

EQUATION = re.compile(r"[-+*/^=].*\b\w?[a-z]?(log|q|p|z|MLE|loss)|\b(log|exp|sum|max|KL|H)\b ?[(\w]")
LIBRARY = "emobench.objectives."
STEPS = 3


@check(
    "Write the equation in the class's docstring, such as -log q_t, and its source: a paper with its year, an "
    'address, or "Own."',
)
def documentation(subject: CheckedObjective) -> None:
    """The docstring of the class or its module has an equation, and a source."""
    _skip_combinations(subject)
    written = "\n".join(docstrings(type(subject.objective)))
    if written and not EQUATION.search(written):
        raise Broken("its docstring shows no equation")
    require_source(type(subject.objective))


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
    first = one.frozen_state()
    second = two.frozen_state()
    if first.keys() != second.keys() or not all(torch.equal(v, second[n]) for n, v in first.items()):
        raise Broken("setup twice makes two frozen states")


@check(
    "What changes during training (in `begin_step`) belongs into `state()` as tensors, and `load_state` restores "
    "it; or compute it from the step alone.",
)
def state(subject: CheckedObjective) -> None:
    """The values of `state` are enough to go on after a resume, with the same losses."""
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
    """Defaults are allowed, values out of range are refused, and the loss is finite at both ends."""
    fields = {f.name: f for f in dataclasses.fields(subject.objective)}  # type: ignore[arg-type]
    if not fields:
        raise Skipped("it has no parameters")
    _skip_combinations(subject)
    cls = type(subject.objective)
    params = subject.objective.params
    required = {name: params[name] for name, f in fields.items() if f.default is dataclasses.MISSING}
    _build(cls, required, "its defaults are refused")
    for name, field in fields.items():
        for value in _outside(field.metadata, params[name]):
            with contextlib.suppress(ConfigError):
                cls(**{**params, name: value})
                raise Broken(f"the value {name}={value} is out of range, and not refused")
        for value in _ends(field.metadata):
            words = f"{name}={value}, an end of its range,"
            objective = _build(cls, {**params, name: value}, f"{words} is refused")
            if not torch.isfinite(losses(subject, subject.fresh(objective)[0])).all():
                raise Broken(f"with {words} its loss is not finite")


def losses(subject: CheckedObjective, objective: Objective) -> Tensor:
    """Return the losses of the tokens or units of a subject's batch. The objective must be set up."""
    if isinstance(objective, ModelObjective):
        return model_checks.losses(subject, objective)
    return subject.given(ready=objective, side=subject.side_of(objective)).run().values["loss"]


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


def checks(
    objective: Objective, *, side: Mapping[str, Tensor] | None = None, **sizes: Any
) -> tuple[Sequence[Check], CheckedObjective]:
    """Return the checks of an objective and their subject. Later checks depend on earlier ones."""
    own = model_checks.MODEL_CHECKS if level(objective) == "model" else token_checks.TOKEN_CHECKS
    chosen = [setup, *own, parameters, state, documentation]
    if not objective.side_names and token_checks.side_data in chosen:
        chosen.remove(token_checks.side_data)
    return chosen, CheckedObjective(objective, given_side=dict(side or {}), **sizes)


# The facts that a class states itself

LEVELS = {
    "statistics": "Functions of token statistics",
    "logits": "Functions of the logits",
    "model": "Functions of the model and the batch",
}
SENTENCE_END = re.compile(r"(?<!Eq)(?<!Sec)(?<!al)(?<!e\.g)\. (?=[A-Z`])")
EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*]*\S)\*(?![\w*])")
LINE_IN_PARAGRAPH = re.compile(r"(?<=\S)\n(?=[^\s*-])")
FRAGMENT = re.compile(r"Eqs?\. ?\d[\d, and-]*|([\w.-]+ )?(19|20)\d\d")
"""Pieces of a reference that are no source alone: Eq. 14, 2015, NeurIPS 2018."""


def facts(cls: Any) -> dict[str, Any]:
    """Return the facts that the class of an objective states itself."""
    equation, _, about = _own_doc(cls).partition("\n\n")
    about = EMPHASIS.sub(r"\1", LINE_IN_PARAGRAPH.sub(" ", about))
    kind = level(cls)
    needs = {"log_prob", *cls.needs}
    slopes = None
    if issubclass(cls, StatisticsObjective):
        slopes = "autograd" if cls.slopes is StatisticsObjective.slopes else "closed form"
    return {
        "version": cls.version,
        "group": _group(cls, kind),
        "summary": _summary(cls, about),
        "about": about,
        "equation": " ".join(equation.split()),
        "level": kind,
        "statistics": sorted(needs & set(STATISTICS)) if kind == "statistics" else [],
        "side_data": sorted(needs - set(STATISTICS)),
        "slopes": slopes,
        "source": _source(cls),
    }


def _own_doc(cls: type) -> str:
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)


def _summary(cls: Any, about: str) -> str:
    """Return one line: of the module where it is about this objective, else of the class, else of the module."""
    own = SENTENCE_END.split(" ".join(about.split()))[0]
    title = _module_title(cls)
    return EMPHASIS.sub(r"\1", (title or own) if _is_alone(cls) else (own or title)).rstrip(".")


def _source(cls: Any) -> str:
    """Return the bracket, or else the sentence, that names where an equation is from; never a piece of a reference."""
    texts = docstrings(cls)
    if _is_alone(cls):
        texts.reverse()  # the module's first
    paragraphs = [" ".join(paragraph.split()) for text in texts for paragraph in text.split("\n\n")]
    for pieces in (re.compile(r"\(([^()]*)\)").findall, SENTENCE_END.split):
        for text in paragraphs:
            for piece in pieces(text):
                words = piece.strip(" .")
                if SOURCE.search(words) and not FRAGMENT.fullmatch(words):
                    return EMPHASIS.sub(r"\1", words)
    return ""


def _is_alone(cls: Any) -> bool:
    """Return whether a module is about this objective: it has no other, or begins with its name."""
    values = vars(inspect.getmodule(cls)).values()
    classes = [value for value in values if inspect.isclass(value) and value.__module__ == cls.__module__]
    objectives = [value for value in classes if issubclass(value, Objective) and not inspect.isabstract(value)]
    return len(objectives) == 1 or _module_title(cls).lower().startswith(cls.name)


def _module_title(cls: Any) -> str:
    return (inspect.getdoc(inspect.getmodule(cls)) or "").partition("\n")[0]


def _group(cls: Any, kind: str) -> str:
    """Return the title under which an objective is listed."""
    extra = []
    if "expected_cost" in cls.needs:
        extra.append("transport costs")
    if set(cls.needs) - set(STATISTICS):
        extra.append("side data (other tokens, a teacher, a known language)")
    title = LEVELS[kind]
    if extra:
        title += f", with {' and '.join(extra)}"
    return title
