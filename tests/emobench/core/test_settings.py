"""Configuration is strict, never evaluates, hashes stably, and says where a slip is."""

from __future__ import annotations

import json
import keyword
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.core.settings import (
    build,
    canonical_json,
    content_hash,
    parse_arguments,
    parse_call,
    parse_overrides,
    to_plain,
)
from emobench.tasks.yaml import read_yaml


@dataclass(frozen=True, kw_only=True)
class Inner:
    rank: int = 8
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    inner: Inner = Inner()
    choice: bool | Inner = False
    limit: int | None = None
    folder: Path = Path()
    table: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ConfigError(f"`rate` is {self.rate}; expected 0 or more.")


def test_build_converts_every_field() -> None:
    given = {
        "name": "x",
        "rate": "5e-5",  # what YAML makes of 5e-5
        "kind": "b",
        "inner": {"rank": 4, "names": ["q", "v"]},
        "choice": {"rank": 2},
        "limit": None,
        "folder": "runs/here",
        "table": {"k": 1},
    }
    assert build(Outer, given, "here") == Outer(
        name="x",
        rate=5e-5,
        kind="b",
        inner=Inner(rank=4, names=("q", "v")),
        choice=Inner(rank=2),
        folder=Path("runs/here"),
        table={"k": 1},
    )
    assert isinstance(build(Outer, {"name": "x", "rate": 1}, "here").rate, float)
    assert build(Outer, {"name": "x", "choice": True}, "here").choice is True


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "here: `name` is missing; give it a value."),
        ({"name": 3}, "here: `name` is 3; expected text."),
        ({"name": "x", "rate": "fast"}, "here: `rate` is 'fast'; expected a number."),
        ({"name": "x", "rate": True}, "here: `rate` is True; expected a number."),
        ({"name": "x", "rate": 10**400}, "expected a number."),
        ({"name": "x", "rate": -1}, "here: `rate` is -1.0; expected 0 or more."),
        ({"name": "x", "kind": "c"}, "here: `kind` is 'c'; expected one of 'a', 'b'."),
        ({"name": "x", "limit": 1.0}, "here: `limit` is 1.0; expected a whole number."),
        ({"name": "x", "limit": True}, "here: `limit` is True; expected a whole number."),
        ({"name": "x", "inner": 3}, "here: `inner`: expected a mapping of settings, got 3."),
        ({"name": "x", "inner": {"names": "q"}}, "here: `inner`: `names` is 'q'; expected a list, such as"),
        ({"name": "x", "inner": {"names": [1]}}, "here: `inner`: `names`[0] is 1; expected text."),
        ({"name": "x", "choice": "yes"}, "here: `choice` is 'yes'; expected true or false."),
        ({"name": "x", "table": {"k": "v"}}, "here: `table`.k is 'v'; expected a whole number."),
        ({"name": "x", "table": [1]}, "here: `table` is [1]; expected a mapping."),
    ],
)
def test_what_does_not_fit_is_a_sentence(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(Outer, given, "here")
    assert text in str(error.value)


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match=r"here: There is no setting 'rat'; did you mean 'rate'\? Known: choi"):
        build(Outer, {"name": "x", "rat": 1}, "here")
    for name in ("inner", "choice"):  # of which the other may be a word, too
        with pytest.raises(UnknownNameError, match=rf"here: `{name}`: There is no setting 'rnk'; did you mean 'rank'"):
            build(Outer, {"name": "x", name: {"rnk": 1}}, "here")
    with pytest.raises(ConfigError, match="here: expected a mapping of settings, got 7"):
        build(Outer, 7, "here")  # type: ignore[arg-type]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), plain, max_size=4), st.randoms())
def test_a_hash_depends_on_content_and_not_on_order(mapping: dict[str, Any], random: Any) -> None:
    keys = list(mapping)
    random.shuffle(keys)
    shuffled = {key: mapping[key] for key in keys}
    assert content_hash(shuffled) == content_hash(mapping)
    assert json.loads(canonical_json(mapping)) == mapping
    assert content_hash({**mapping, "one more": 1}) != content_hash(mapping) or mapping.get("one more") == 1


def test_a_hash_is_the_same_in_another_process() -> None:
    value = Outer(name="ä", inner=Inner(names=("b", "a")), folder=Path("x"), table={"z": 1, "a": 2})
    assert to_plain({frozenset({"b", "a"}): 1, "s": {"b", "a"}})["s"] == ["a", "b"]
    code = (
        "from emobench.core.settings import content_hash; "
        "print(content_hash({'s': {'b', 'a', 'c'}, 'n': [1, 2.5, None]}))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    # sha256 of {"n":[1,2.5,null],"s":["a","b","c"]}, by sha256sum
    assert seen == {"38023dc08606e735c946d3c8a0149dd1b55222d6c6296a27dd9cb20f0317986d"}
    assert content_hash(value) == content_hash(to_plain(value))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_hash_refuses_numbers_that_json_has_not(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        content_hash({"x": number})


def test_overrides_are_nested_yaml_values() -> None:
    words = "recipe.epochs=1 recipe.lora=false tasks=[a,b] corpus=ag_news recipe.ends=true objective.x=a=b"
    assert parse_overrides(words.split()) == {
        "recipe": {"epochs": 1, "lora": False, "ends": True},
        "tasks": ["a", "b"],
        "corpus": "ag_news",
        "objective": {"x": "a=b"},
    }
    assert parse_overrides(["a={b: 1}", "a.c=2"]) == {"a": {"b": 1, "c": 2}}
    assert parse_overrides([]) == {}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["recipe.epochs"], "--set recipe.epochs: expected key=value"),
        (["=1"], "--set =1: expected key=value"),
        (["recipe.=1"], "expected key=value"),
        (["a..b=1"], "expected key=value"),
        (["a=1", "a=2"], "--set a=2: `a` is set twice; keep one."),
        (["a=1", "a.b=2"], "--set a.b=2: `a.b` is set twice"),
        (["a.b=2", "a=1"], "--set a=1: `a` is set twice; keep one."),
        (["a={b: 1}", "a.b=2"], "`a.b` is set twice"),
    ],
)
def test_overrides_that_cannot_be_read(given: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_overrides(given)
    assert text in str(error.value)


# No YAML, or numbers and dates that YAML's own readers stumble over.
@pytest.mark.parametrize("raw", ["!!python/object/apply:os.system [x]", "{", "2020-13-45", "0b_", "*x", "\x07"])
def test_an_override_that_yaml_cannot_read_is_text(raw: str) -> None:
    assert parse_overrides([f"a={raw}"]) == {"a": raw}


@given(st.text())
def test_any_override_is_read_or_refused_with_a_sentence(text: str) -> None:
    with suppress(ConfigError):  # any other exception would be a traceback
        assert isinstance(parse_overrides([text]), dict)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("emo", ("emo", {})),
        (" tailr ", ("tailr", {})),
        ("tailr(gamma=0.2)", ("tailr", {"gamma": 0.2})),
        (" tailr (gamma = -0.2, name='a b') ", ("tailr", {"gamma": -0.2, "name": "a b"})),
        ("emo()", ("emo", {})),
        ("emo(cost=gpt2-large)", ("emo", {"cost": "gpt2-large"})),
        ("emo(cost=openai/gpt2, k=1)", ("emo", {"cost": "openai/gpt2", "k": 1})),
        ("x(a=true, b=False, c=None, d=[1, 2])", ("x", {"a": True, "b": False, "c": None, "d": [1, 2]})),
        ("./my-loss.py:MyLoss(x=1)", ("./my-loss.py:MyLoss", {"x": 1})),
    ],
)
def test_a_call_is_split(text: str, expected: tuple[str, dict[str, Any]]) -> None:
    assert parse_call(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("tailr(0.2)", "tailr(gamma=0.2", "tailr(gamma=0.1, gamma=0.2)", "tailr(gamma=0.1)(gamma=0.2)", "tailr(*[1])"),
        *("tailr(**{'gamma': 1})", "tailr(gamma=1) + 1", "tailr(gamma=1); x", "x(a={[]: 1})", "x(a=\x00)"),
        *("x(a=" + "-" * 100_000 + "1)", "x(a=f'{1}')", "x(a=1 if 1 else 2)"),
    ],
)
def test_a_call_that_cannot_be_read_is_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"could not be read .* expected name\(key=value"):
        parse_call(text)


def test_arguments_are_positional_and_named() -> None:
    assert parse_arguments("(1, 0.5, at=-2, name=gpt2-large)") == ([1, 0.5], {"at": -2, "name": "gpt2-large"})
    assert parse_arguments("()") == ([], {})
    for text, reason in (("(1", "was never closed"), ("(a=1, a=2)", "repeated|named once"), ("(1)(2)", "one pair of")):
        with pytest.raises(ValueError, match=reason):
            parse_arguments(text)


@given(st.text(), st.text())
def test_any_call_is_read_or_refused_with_a_sentence(name: str, arguments: str) -> None:
    with suppress(ConfigError):
        assert parse_call(f"{name}({arguments})")[0] == name.strip()


values = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.none()


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True).filter(str.isidentifier), values, max_size=4))
def test_a_call_written_with_literals_is_read_back(arguments: dict[str, Any]) -> None:
    arguments = {k: v for k, v in arguments.items() if not keyword.iskeyword(k)}
    text = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
    assert parse_call(f"name({text})") == ("name", arguments)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: x\nrate: 1\n\ninner:\n  rank: 3\n  nmes: [a]\n", 6, "There is no setting 'nmes'; did you mean 'names'"),
        ("name: x\nrate: fast\n", 2, "`rate` is 'fast'; expected a number"),
        ("# a comment\n\nrate: 1\n", 3, "`name` is missing"),
        ("name: x\nrate: -2\n", 1, "`rate` is -2.0; expected 0 or more"),
    ],
)
def test_errors_of_a_file_name_file_and_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"^{path}:{line}: {said}"):
        build(Outer, read_yaml(path), str(path))


@settings(max_examples=40)
@given(plain)
def test_plain_yaml_is_read_as_pyyaml_reads_it(value: Any) -> None:
    text = yaml.safe_dump({"value": value}, allow_unicode=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_text(text, encoding="utf-8")
        assert read_yaml(path) == yaml.safe_load(text)
