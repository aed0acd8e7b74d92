"""Groups of options: a command takes a dataclass as one parameter, and each of its fields is an option."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of the parameters that are dataclasses."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    parameters: dict[str, inspect.Parameter] = {}
    for parameter in signature.parameters.values():
        own = [parameter]
        if dataclasses.is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            own = _fields(parameter.annotation)
        for one in own:
            parameters[one.name] = one.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            values = {field.name: given.pop(field.name) for field in dataclasses.fields(group)}
            given[name] = group(**values)
        command(**given)

    flat.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    flat.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return flat


def _fields(group: Any) -> list[inspect.Parameter]:
    """Return a dataclass's fields as parameters: its own before the inherited ones."""
    parameters = []
    known = inspect.signature(group).parameters
    hints = get_type_hints(group, include_extras=True)
    for cls in group.__mro__:
        for name in inspect.get_annotations(cls):
            parameters.append(known[name].replace(annotation=hints[name]))
    return parameters
