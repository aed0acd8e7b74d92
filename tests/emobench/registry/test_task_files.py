"""Suites, tasks and recipes from files of the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from emobench import registry
from emobench.core.errors import ConfigError, UserError
from emobench.tasks.spec import short_name

OWN_SUITE = """
name: my-suite
version: 1
runs:
  - recipe: ./my-recipe.yaml
    tasks: [sub/my-task.yaml, sst2]
"""
OWN_TASK = """
name: my-task
kind: generation
version: 1
corpus: wikitext2
protocols: {short: {prefix: 8, continuation: 16}}
"""
OWN_LABELLED = """
name: stars
kind: icl
version: 1
dataset:
  name: stars
  repo: someone/stars
  classes: [one, five]
  names: {'0': one, '1': five}
  pool: {split: train, files: train.parquet}
  test: {split: test, files: test.parquet}
protocols:
  plain:
    template: 'Review: {text} Stars: {label}'
    labels: {one: one, five: five}
"""
OWN_RECIPE = """
name: my-recipe
corpus: wikitext2
epochs: 1
batch: 2
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A suite of the user's, whose task and recipe are files, too."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "my-suite.yaml").write_text(OWN_SUITE)
    (tmp_path / "my-recipe.yaml").write_text(OWN_RECIPE)
    (tmp_path / "sub" / "my-task.yaml").write_text(OWN_TASK)
    return tmp_path / "my-suite.yaml"


def test_a_suite_of_files_takes_their_paths_from_its_own_folder(own: Path) -> None:
    suite = registry.find_suite(str(own))
    (run,) = suite.runs
    assert (suite.name, run.tasks[1]) == ("my-suite", "sst2")
    assert [short_name(name) for name in run.tasks] == ["my-task", "sst2"]
    assert registry.find_task(run.tasks[0]).protocol.prefix == 8
    assert registry.find_recipe(run.recipe).batch == 2


def test_the_file_of_a_task_is_a_suite_of_it(own: Path) -> None:
    suite = registry.find_suite(str(own.parent / "sub" / "my-task.yaml"))
    (run,) = suite.runs
    assert (suite.name, suite.version, run.settings) == ("my-task", 1, {"corpus": "wikitext2"})
    assert registry.find_task(*run.tasks).protocol.prefix == 8
    labelled = own.with_name("stars.yaml")
    labelled.write_text(OWN_LABELLED)
    (run,) = registry.find_suite(str(labelled)).runs
    assert (run.recipe, run.settings) == (registry.DEFAULT_RECIPE, {})
    labelled.write_text(OWN_LABELLED.replace("plain:", "plain: {templat: x}\n  other:"))
    with pytest.raises(UserError, match=r"stars\.yaml:\d+: .*templat"):
        registry.find_suite(str(labelled))


def test_files_may_end_in_yml(own: Path) -> None:
    for path in (own, own.with_name("my-recipe.yaml"), own.parent / "sub" / "my-task.yaml"):
        path.rename(path.with_suffix(".yml"))
    suite = own.with_suffix(".yml")
    suite.write_text(OWN_SUITE.replace(".yaml", ".yml"))
    (run,) = registry.find_suite(str(suite)).runs
    assert [short_name(name) for name in run.tasks] == ["my-task", "sst2"]
    assert registry.find_task(run.tasks[0]).protocol.prefix == 8
    assert registry.find_recipe(run.recipe).batch == 2
    assert registry.find_suite(run.tasks[0]).name == "my-task"


def test_files_that_no_entry_could_tell_from_what_is_installed_are_refused(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file .*other\.yaml; expected the YAML of a suite"):
        registry.find_suite(str(own.with_name("other.yaml")))
    taken = own.with_name("nlu.yaml")
    taken.write_text(OWN_SUITE)
    with pytest.raises(ConfigError, match=r"nlu\.yaml has the name of an installed suite"):
        registry.find_suite(str(taken))
    other = own.with_name("yours.yaml")
    other.write_text(OWN_SUITE)
    with pytest.raises(ConfigError, match=r"`name: my-suite`; expected `name: yours`"):
        registry.find_suite(str(other))
    task = own.with_name("ptb.yaml")  # installed as generation/ptb
    task.write_text(OWN_TASK)
    with pytest.raises(ConfigError, match=r"ptb\.yaml has the name of an installed task"):
        registry.find_task(str(task))
