"""A file of options, in TOML: `emobench run run.toml` takes what its flags take, by the same names.

suite = "lm-quick"
objective = ["mle", "emo"]
seed = [0, 1, 2]

[set]                         # settings of --set
recipe.epochs = 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from emobench.cli.commands import OPTIONS_FILE
from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.reading import read_toml
from emobench.core.settings import dotted_settings, setting_word

ENDING = ".toml"
SET = "set"
OptionsFile = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN.toml",
        help="A file with options by the same names, and settings in a table [set]. Other options override it.",
    ),
]


def expanded(command: Any, context: Any, words: Sequence[str]) -> list[str]:
    """Return the words after a command, with the options of a file that is among them in place of the file.

    Raises a UserError for a file that cannot be used.
    """
    given, _, _ = command.make_parser(context).parse_args(list(words))
    file = given.get(OPTIONS_FILE)
    if not isinstance(file, str) or not file.endswith(ENDING):
        return list(words)
    options: dict[str, Any] = {}
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--") and option != "--help":
                options[option[2:]] = parameter
    before: list[str] = []
    for key, value in read_toml(Path(file)).items():
        name = key.replace("_", "-")
        if name not in options:
            raise _unknown(file, key, options)
        own = given.get(options[name].name)
        if name == SET:
            before += _settings(file, value, own or ())
        elif own is None:
            before += _words(f"{file}: `{key}`", name, options[name], value)
    rest = list(words)
    rest.remove(file)
    return [*before, *rest]


def _settings(file: str, table: Any, given: Sequence[str]) -> list[str]:
    """Return --set for the settings of a table, but for those that `given`, KEY=VALUE each, has."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: `{SET}` is {table!r:.60}; expected a table of settings, such as recipe.epochs = 1.")
    keys = []
    for text in given:
        keys.append(f"{text.partition('=')[0].strip()}.")
    words: list[str] = []
    for name, value in dotted_settings(table):
        path = f"{name}."
        if not any(path.startswith(key) or key.startswith(path) for key in keys):
            words += ["--set", f"{name}={setting_word(value)}"]
    return words


def _words(where: str, name: str, parameter: Any, value: Any) -> list[str]:
    """Return the words of an option that is no setting."""
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise ConfigError(f"{where} is {value!r:.60}; expected true or false.")
        return [f"--{name}"] if value else []
    values = [value]
    if isinstance(value, list) and parameter.multiple:
        values = value
    words: list[str] = []
    for one in values:
        if isinstance(one, (bool, list, Mapping)):
            many = " or a list of them" if parameter.multiple else ""
            raise ConfigError(f"{where} is {value!r:.60}; expected a number or text{many}.")
        words += [f"--{name}", str(one)]
    return words


def _unknown(file: str, key: str, known: Mapping[str, Any]) -> ConfigError | UnknownNameError:
    from emobench.runs.inspect.settings import own_names
    from emobench.runs.planning.request import setting_names

    if key in ("grid", "skip", "also"):
        return ConfigError(f"{file}: `{key}` belongs to a sweep: emobench sweep run {file}")
    own = [key] if key in setting_names() else own_names(key, known)
    keys = []
    for name in own:
        keys.append(name[2:] if name.startswith("--") else f"{SET}.{name}")
    if keys:
        return ConfigError(f"{file}: There is no option '{key}'; use {' or '.join(keys)} instead.")
    return UnknownNameError("option", key, known, where=f"{file}: ")
