"""What `--set` takes: each setting with its type, its default, and the docstring of its field as its meaning."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.settings import to_plain
from emobench.registry import usable_kinds
from emobench.runs.planning.request import setting_names
from emobench.tasks.rules import RuleGroup, rule_groups
from emobench.training.recipe import PASSED_ON, Lora, Recipe, own_name

WORDS = {
    "objective": (
        "objective.NAME",
        "any",
        "A parameter of the one --objective: objective.gamma=0.2. `emobench objectives show NAME` lists each with its "
        "range and default.",
    ),
    "tasks": ("tasks", "names", "Evaluate only these tasks of the suite: tasks=sst2,trec. Default: all of them."),
    "corpus": (
        "corpus",
        "name",
        "The texts to train on, and to evaluate on in tasks that read any corpus: an installed name (ag_news), a "
        "column of your own files (./reviews.csv:text), NAME of DIR/NAME.train.jsonl with --data-dir DIR, or a data "
        "set of the hub, OWNER/NAME:COLUMN. Default: the corpora that the recipe and the tasks name.",
    ),
    "protocol": (
        "protocol",
        "name",
        "The named set of rules by which each task is evaluated: protocol=paper. `emobench tasks show TASK` shows one. "
        "Default: the first one in each task's file.",
    ),
}
"""The settings that no dataclass has: name, type and meaning by the first word."""

_PASSED = re.compile(r"^(recipe\.trainer)\..+")
_SECTIONS_ELSEWHERE = re.compile(r"^((recipe|trainer|training|lora|peft)\.)+")


class Setting(NamedTuple):
    """A setting. `default` is None for null and where `required`: a file, such as a task's or a recipe's, has it."""

    name: str
    type: str
    default: Any
    required: bool
    meaning: str


def settings(section: str | None = None) -> list[Setting]:
    """Return what `--set` takes, or what begins with one first word."""
    names = sorted(setting_names())
    return [setting for name in names if section in (None, name) for setting in _section(name)]


def search(word: str) -> list[Setting]:
    """Return the settings of a section, or those that a word is about, best matches first.

    The word may be a part of a name, the beginning of a word of a meaning, or what transformers, TRL or peft call the
    setting. Raises ConfigError if an option decides this, and UnknownNameError if nothing matches.
    """
    if word in setting_names():
        return settings(word)
    part = word.casefold().replace(" ", "_")
    own = [_PASSED.sub(r"\1", name) for name in own_names(part)]
    in_meaning = re.compile(rf"\b({re.escape(part)}|{re.escape(part.replace('_', ' '))})")
    matches: list[tuple[int, Setting]] = []
    for setting in settings():
        if setting.name in own:
            matches.append((0, setting))
        elif part in setting.name:
            matches.append((1, setting))
        elif in_meaning.search(setting.meaning.casefold()):
            matches.append((2, setting))
    if not matches and own:
        raise ConfigError(f"There is no setting for '{word}'; use the option {own[0]}.")
    if not matches:
        raise UnknownNameError("setting about", word, setting_names())
    matches.sort(key=lambda match: match[0])
    return [setting for _, setting in matches]


def own_names(name: str, options: Iterable[str] = ()) -> list[str]:
    """Return the settings, or the option, that a user means by a name from elsewhere, or by a setting's last word.

    None for a name that is close to one of `options`, unless another library has it: it is a slip.

    >>> own_names("lora.r"), own_names("adam_beta2"), own_names("top_p")
    (['recipe.lora.rank'], ['recipe.trainer.adam_beta2'], ['generation.sampling.top_p'])
    """
    word = _SECTIONS_ELSEWHERE.sub("", name.lstrip("-").replace("-", "_"))
    if own := own_name(word):
        return [own]
    if word in PASSED_ON:
        return [f"recipe.trainer.{word}"]
    if difflib.get_close_matches(name, options, n=1, cutoff=0.75):
        return []
    return [setting.name for setting in settings() if setting.name.rpartition(".")[2] == word]


def meanings_of_settings() -> dict[str, str]:
    """Return the meaning of each setting by its name."""
    return {setting.name: setting.meaning for setting in settings()}


def _section(name: str) -> Iterator[Setting]:
    if name in WORDS:
        shown, kind, meaning = WORDS[name]
        yield Setting(shown, kind, None, False, meaning)
    elif name == "recipe":
        yield from (setting for setting in _fields(Recipe, "recipe.") if setting.name != "recipe.name")
        yield from _fields(Lora, "recipe.lora.")
    else:
        own: list[type] = []
        shared: list[type] = []
        for kind in usable_kinds():
            if kind.name == name:
                own.append(kind.rules)
            if name in rule_groups(kind.rules):
                shared.append(type(rule_groups(kind.rules)[name]))
        for cls in dict.fromkeys([*own, *shared]):
            yield from _fields(cls, f"{name}.")


def _fields(cls: Any, prefix: str) -> Iterator[Setting]:
    """Yield the settings of a dataclass; groups of rules have a section of their own."""
    hints, about = get_type_hints(cls), meanings(cls)
    for field in dataclasses.fields(cls):
        if isinstance(field.default, RuleGroup):
            continue
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _fields(hints[field.name], f"{prefix}{field.name}.")
            continue
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        required = default is dataclasses.MISSING
        shown = None if required else to_plain(default)
        yield Setting(prefix + field.name, _type(hints[field.name]), shown, required, about.get(field.name, ""))


@functools.cache
def meanings(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields of a dataclass and of those it is derived from, each on one line."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, after in itertools.pairwise(body.body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def _type(hint: Any) -> str:
    """Return a type as a reader of YAML writes its values: "number", "linear | cosine"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type, inner))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if dataclasses.is_dataclass(hint) or origin in (dict, Mapping):
        return "mapping"
    names = {int: "whole number", float: "number", str: "text", bool: "true | false", type(None): "null"}
    return names.get(hint, str(hint))
