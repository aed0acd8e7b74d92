"""What is wrong in a YAML file is named with its file and line, and nothing in a file is executed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emobench.core.errors import ConfigError
from emobench.core.settings import Located
from emobench.tasks.yaml import read_yaml, yaml_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.yaml"


def test_nested_mappings_know_their_lines(path: Path) -> None:
    path.write_text("# about\nname: x\nruns:\n  - recipe: a\n    tasks: [b]\n  - recipe: c\nempty:\n")
    found = read_yaml(path)
    assert found == {"name": "x", "runs": [{"recipe": "a", "tasks": ["b"]}, {"recipe": "c"}], "empty": None}
    assert found.where("runs") == f"{path}:3"
    second = found["runs"][1]
    assert isinstance(second, Located)
    assert second.where("recipe") == f"{path}:6"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "`a` stands twice; keep one."),
        ("a:\n  b: 1\n  b: 1\n", 3, "`b` stands twice; keep one."),
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "this is not YAML"),
        ("a: 1\n\tb: 2\n", 2, "this is not YAML"),
        ("a: 1\n--- \nb: 2\n", 2, "this is not YAML: but found another document"),
        ("a: *other\n", 1, "this is not YAML: found undefined alias"),
        ("a: &x [*x]\n", 1, "this is not YAML: an alias (`*name`) stands for other text"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []\n", 2, "this is not YAML: could not determine a constructor"),
        ("a: 1\nb: !include other.yaml\n", 2, "this is not YAML: could not determine a constructor"),
        ("a: 1\nwhen: 2020-13-45\n", 2, "2020-13-45 cannot be read; put text in quotes."),
        ("a: 0b_\n", 1, "0b_ cannot be read"),
        ("a: 1\n3: x\n", 2, "a key is 3; expected text"),
        ("a: 1\n[b]: x\n", 2, "a key is ['b']; expected text"),
        ("- a\n- b\n", 1, "expected a mapping of settings, such as `name: some`."),
        ("just text\n", 1, "expected a mapping of settings"),
        ("", 1, "expected a mapping of settings"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(path: Path, text: str, line: int, reason: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"^{re.escape(f'{path}:{line}: {reason}')}"):
        read_yaml(path)


def test_bytes_that_are_no_text_and_files_that_are_none(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(path)
    path.write_bytes(b"a: \x07\n")
    with pytest.raises(ConfigError, match=rf"^{path}: this is not YAML: unacceptable character"):
        read_yaml(path)
    for place in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(ConfigError, match=rf"^{place} cannot be read"):
            read_yaml(place)


def test_files_are_found_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("third.yaml", "inner/first.yaml", "inner/notes.txt"):
        (tmp_path / name).touch()
    assert yaml_files(tmp_path) == {"inner/first": tmp_path / "inner/first.yaml", "third": tmp_path / "third.yaml"}
    assert yaml_files(tmp_path / "none") == {}
