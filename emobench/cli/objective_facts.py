"""What is known of an objective without running it: for `emobench objectives list` and `show`."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

LEVELS = {
    "statistics": "Functions of token statistics",
    "logits": "Functions of the logits",
    "model": "Functions of the model and the batch",
}
SENTENCE_END = re.compile(r"(?<!Eq)(?<!Sec)(?<!al)(?<!e\.g)\. (?=[A-Z`])")


def facts(cls: Any, name: str) -> dict[str, Any]:
    """Return what an objective's class says of itself; `name` is what `--objective` takes."""
    from emobench.objectives import STATISTICS, StatisticsObjective
    from emobench.registry import objective_origin
    from emobench.testing.object_checks import source_of
    from emobench.testing.subject import level

    equation, _, about = _own_doc(cls).partition("\n\n")
    kind = level(cls)
    closed = issubclass(cls, StatisticsObjective) and cls.slopes is not StatisticsObjective.slopes
    return {
        "name": cls.name,
        "version": cls.version,
        "level": kind,
        "group": _group(cls, kind),
        "summary": _summary(cls, about),
        "equation": " ".join(equation.split()),
        "about": about,
        "source": source_of(cls),
        "needs": sorted({"log_prob", *cls.needs}),
        "statistics": sorted({"log_prob", *cls.needs} & set(STATISTICS)) if kind == "statistics" else [],
        "side_data": sorted(set(cls.needs) - set(STATISTICS)),
        "slopes": ("closed form" if closed else "autograd") if kind == "statistics" else None,
        "origin": objective_origin(name),
        "file": inspect.getfile(cls),
        "parameters": [_parameter(field) for field in dataclasses.fields(cls)],
    }


def unusable(name: str, error: Exception) -> dict[str, Any]:
    """Return the facts of an objective that does not load."""
    words = {"name": name, "version": "", "level": "", "group": "Unusable", "equation": "", "origin": ""}
    return {**words, "parameters": [], "summary": f"unusable: {error}"}


def _parameter(field: dataclasses.Field[Any]) -> dict[str, Any]:
    from emobench.objectives.parameters import describe_range

    return {
        "name": field.name,
        "type": field.type if isinstance(field.type, str) else field.type.__name__,
        "default": None if field.default is dataclasses.MISSING else field.default,
        "range": describe_range(field),
        "help": field.metadata.get("help", ""),
    }


def _own_doc(cls: type) -> str:
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)


def _summary(cls: type, about: str) -> str:
    """Return one line: of the module where it is this objective's alone, else of the class, else of the module."""
    from emobench.objectives import Objective

    module = inspect.getmodule(cls)
    said = (inspect.getdoc(module) or "").partition("\n")[0] if module else ""
    here = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Objective)
        and value.__module__ == cls.__module__
        and not inspect.isabstract(value)
    ]
    own = SENTENCE_END.split(" ".join(about.split()))[0]
    mainly = len(here) == 1 or said.lower().startswith(cls.name)  # type: ignore[attr-defined]
    return (said or own) if mainly else (own or said)


def _group(cls: Any, kind: str) -> str:
    """Return the title under which an objective is listed."""
    from emobench.objectives import STATISTICS

    extra = ["transport costs"] if "expected_cost" in cls.needs else []
    extra += ["side data (other tokens, a teacher, a known language)"] if set(cls.needs) - set(STATISTICS) else []
    return f"{LEVELS[kind]}{', with ' if extra else ''}{' and '.join(extra)}"
