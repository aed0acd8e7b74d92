"""Facts of an objective's class for `emobench objectives list` and `show`: equation, source, level, statistics."""

from __future__ import annotations

import inspect
import re
from typing import Any

from emobench.core.conformance import SOURCE, docstrings
from emobench.objectives import STATISTICS, Objective, StatisticsObjective
from emobench.testing.subject import level

LEVELS = {
    "statistics": "Functions of token statistics",
    "logits": "Functions of the logits",
    "model": "Functions of the model and the batch",
}
SENTENCE_END = re.compile(r"(?<!Eq)(?<!Sec)(?<!al)(?<!e\.g)\. (?=[A-Z`])")
EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*]*\S)\*(?![\w*])")
LINE_IN_PARAGRAPH = re.compile(r"(?<=\S)\n(?=[^\s*-])")
FRAGMENT = re.compile(r"Eqs?\. ?\d[\d, and-]*|([\w.-]+ )?(19|20)\d\d")
"""What is no source without the words around it: Eq. 14, 2015, NeurIPS 2018."""


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
        for found in (piece.strip(" .") for text in paragraphs for piece in pieces(text)):
            if SOURCE.search(found) and not FRAGMENT.fullmatch(found):
                return EMPHASIS.sub(r"\1", found)
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
    return ", with ".join([LEVELS[kind], *([" and ".join(extra)] if extra else [])])
