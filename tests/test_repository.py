"""Files for other services: they parse, and name files and extras that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SERVICES = [
    ".readthedocs.yaml",
    ".pre-commit-config.yaml",
    *(str(p.relative_to(ROOT)) for p in ROOT.glob(".github/**/*.yml")),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", SERVICES)
def test_a_configuration_parses(name: str) -> None:
    assert isinstance(yaml.safe_load((ROOT / name).read_text()), dict)


@pytest.mark.parametrize("name", [".readthedocs.yaml", ".github/workflows/pages.yml", "Dockerfile"])
def test_an_installation_names_extras_that_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    lists = re.findall(r"(?:EXTRAS=|\"\.\[|extra_requirements: \[)([a-z,]+)", text)
    assert lists
    for extras in lists:
        assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])


def test_an_image_has_all_that_the_wheel_is_built_from() -> None:
    copied = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"], "pyproject.toml", "README.md", "LICENSE"} <= copied
    assert all((ROOT / place).exists() for place in copied)


def test_an_issue_form_has_questions_with_labels() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        for question in form.get("body", []):
            assert "id" in question, path
            assert "label" in question["attributes"], path
