"""Errors are drawn as they are, carry their exit code, and name what is near."""

from __future__ import annotations

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emobench.cli.terminal.streams import fail
from emobench.core import errors

CLASSES = {n: c for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, Exception)}


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    lines = [line for line in (errors.__doc__ or "").splitlines() if re.search(r"[├└]── |^    Emo", line)]
    parents, found = {0: ""}, {}
    for line in lines:
        name = re.search(r"EmobenchError|(?<=── )\w+", line)
        assert name is not None
        depth = name.start()
        parents = {d: p for d, p in parents.items() if d < depth} | {depth: name[0]}
        found[name[0]] = next((parents[d] for d in sorted(parents, reverse=True) if d < depth), "")
    found["EmobenchError"] = "Exception"
    assert found == {name: cls.__bases__[0].__name__ for name, cls in CLASSES.items()}


def test_exit_codes() -> None:
    for cls in CLASSES.values():
        assert cls.exit_code == (2 if issubclass(cls, errors.UserError) else 1)


def test_an_error_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(errors.StorageError("[bold]runs[/bold] is full.")) == 1
    assert fail(errors.ConfigError("`x` is 1.")) == 2
    assert capsys.readouterr() == ("", "error: [bold]runs[/bold] is full.\nerror: `x` is 1.\n")


def test_an_unknown_name_has_near_ones_or_all() -> None:
    near = errors.UnknownNameError("objective", "emoo", ["mle", "emo"], hint="See.")
    assert str(near) == "There is no objective 'emoo'; did you mean 'emo'? Known: emo, mle. See."
    assert str(errors.UnknownNameError("task", "zzz", ["mle"], where="here: ")) == (
        "here: There is no task 'zzz'. Known: mle."
    )
    assert str(errors.UnknownNameError("task", "x", [])) == "There is no task 'x'. There is no task at all."


@given(st.text(), st.lists(st.text(max_size=8), max_size=5))
def test_any_name_can_be_unknown(name: str, known: list[str]) -> None:
    text = str(errors.UnknownNameError("thing", name, known))
    assert text.startswith(f"There is no thing '{name}'")
