"""What is known of an objective without running it: for `emobench objectives list` and `show`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from typing import Any

from emobench.core.settings import describe_range, parse_call
from emobench.objectives import STATISTICS, Objective, StatisticsObjective
from emobench.objectives.expression import parse_terms
from emobench.registry import load_objective, objective_class, objective_origin
from emobench.testing.object_checks import SOURCE, docstrings
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


def facts(cls: Any, name: str) -> dict[str, Any]:
    """Return what an objective's class says of itself; `name` is what `--objective` takes."""
    equation, _, about = _own_doc(cls).partition("\n\n")
    about = EMPHASIS.sub(r"\1", LINE_IN_PARAGRAPH.sub(" ", about))
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
        "source": _source(cls),
        "needs": sorted({"log_prob", *cls.needs}),
        "statistics": sorted({"log_prob", *cls.needs} & set(STATISTICS)) if kind == "statistics" else [],
        "side_data": sorted(set(cls.needs) - set(STATISTICS)),
        "slopes": ("closed form" if closed else "autograd") if kind == "statistics" else None,
        "origin": objective_origin(name),
        "file": inspect.getfile(cls),
        "parameters": [_parameter(field) for field in dataclasses.fields(cls)],
    }


def term_facts(text: str) -> list[dict[str, Any]]:
    """Return the facts of an objective, or of each term of a sum, which has its weight, too."""
    terms = parse_terms(text)
    if len(terms) == 1 and terms[0].weight is None:
        return [called_facts(terms[0].call)]
    return [{**called_facts(term.call), "weight": str(term.weight or 1)} for term in terms]


def called_facts(call: str) -> dict[str, Any]:
    """Return the facts of a call such as `focal(gamma=9)`, with the values that its parameters have, and its use."""
    name, given = parse_call(call)
    values = load_objective(call).objective.params if given else {}
    found = facts(objective_class(name), name)
    parameters = [{**p, "value": values.get(p["name"], p["default"])} for p in found["parameters"]]
    example = [f"{p['name']}={p['value']}" for p in parameters[:1]]
    use = call if given else f"{name}({example[0]})" if example else name
    return {**found, "parameters": parameters, "use": f"emobench run --objective {_word(use)}"}


def unusable(name: str, error: Exception) -> dict[str, Any]:
    """Return the facts of an objective that does not load."""
    words = dict.fromkeys(("version", "level", "equation", "origin"), "")
    return {**words, "name": name, "group": "Unusable", "parameters": [], "summary": f"unusable: {error}"}


def _word(text: str) -> str:
    """Return a word as a shell takes it: in double quotes where it needs some and they are enough."""
    plain = shlex.quote(text)
    return plain if plain == text or set(text) & set('"$`\\!') else f'"{text}"'


def _parameter(field: dataclasses.Field[Any]) -> dict[str, Any]:
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
    extra = ["transport costs"] if "expected_cost" in cls.needs else []
    extra += ["side data (other tokens, a teacher, a known language)"] if set(cls.needs) - set(STATISTICS) else []
    return f"{LEVELS[kind]}{', with ' if extra else ''}{' and '.join(extra)}"
