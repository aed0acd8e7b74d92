"""Tasks, suites and overrides: typed, checked wherever they come from, and identified by their rules."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.core.settings import build, parse_overrides
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.registry import find_task
from emobench.tasks.rules import override
from emobench.tasks.spec import Suite, Task
from emobench.tasks.yaml import read_yaml

TASK = """\
name: mine
kind: generation
version: 2
corpus: ag_news
protocols:
  short: {prefix: 4, continuation: 8, max_length: 32}
  paper:
    sampling:
      samples: 5
    mauve: {featurizer: gpt2-large, pooling: last}
"""
CHANGES = (
    *("unit=words", "prefix=5", "continuation=9", "margin=1", "min_characters=1", "without=[==]", "bos=one"),
    *("joiner=x", "sampling.samples=2", "sampling.seed=1", "sampling.suppress_eos=false", "sampling.extra_tokens=1"),
    *("sampling.method=greedy", "sampling.method=beam", "sampling.method=beam sampling.beams=5"),
    *("sampling.temperature=0.9", "sampling.top_k=50", "sampling.top_p=0.9", "sampling.typical_p=0.9"),
    *("sampling.min_p=0.1", "mauve.featurizer=gpt2", "mauve.pooling=last", "mauve.pooling=auto"),
    *("mauve.max_length=255", "mauve.seeds=[0]", "oracle.model=gpt2", "oracle.scope=continuation", "limit=7"),
    *("coherence.encoder=all-mpnet-base-v2", "stemming=true", "split=validation", "first_texts=9", "max_length=33"),
    *("test_blocks=3", "documents=stream"),
)
SUITE = """\
name: mine
version: 1
runs:
  - recipe: lm-finetune
    settings:
      epochs: 1
    tasks: [lm-quick]
"""


def task(tmp_path: Path, text: str = TASK, **given: Any) -> Task:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return find_task(str(path), **given)


def test_a_task_is_read_with_its_first_protocol_or_the_named_one(tmp_path: Path) -> None:
    first = task(tmp_path)
    assert (first.name, first.kind, first.version, first.corpus) == ("mine", "generation", 2, "ag_news")
    assert first.protocol == GenerationProtocol(prefix=4, continuation=8, max_length=32)
    paper = task(tmp_path, protocol="paper")
    assert isinstance(paper.protocol, GenerationProtocol)
    assert (paper.protocol.sampling.samples, paper.protocol.mauve.pooling) == (5, "last")
    assert re.fullmatch("short@[0-9a-f]{6}", first.protocol_id)
    assert re.fullmatch("paper@[0-9a-f]{6}", paper.protocol_id)


def test_a_protocol_id_changes_with_every_rule(tmp_path: Path) -> None:
    """Independently of the code: each field, nested ones too, set to another value of its type, makes another id."""
    base = task(tmp_path)
    changes = [parse_overrides(change.split()) for change in CHANGES]
    # A metric of `metrics` has to be installed: tests/emobench/registry/test_example_kind.py.
    assert {"metrics"} | {key for change in changes for key in change} == {
        f.name for f in dataclasses.fields(GenerationProtocol)
    }
    ids = [base.protocol_id, *(task(tmp_path, overrides=change).protocol_id for change in changes)]
    ids += [task(tmp_path, TASK.replace("version: 2", "version: 3")).protocol_id]
    other = tmp_path / "thine.yaml"
    other.write_text(TASK.replace("name: mine", "name: thine"))
    ids += [find_task(str(other)).protocol_id]
    assert len(set(ids)) == len(ids)
    assert task(tmp_path, overrides={"prefix": 4}).protocol_id == base.protocol_id


def test_a_task_knows_the_rules_that_are_not_its_protocols_own(tmp_path: Path) -> None:
    assert task(tmp_path).changes == {}
    given = {"prefix": 4, "limit": 7, "sampling": {"top_p": 0.9}, "mauve": {"featurizer": str(tmp_path)}}
    assert task(tmp_path, overrides=given).changes == {"limit": 7, "sampling.top_p": 0.9, "mauve.featurizer": "local"}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("kind: generation", "kind: generatoin", "mine.yaml:2: There is no kind of task 'generatoin'; did you mean"),
        ("version: 2", "version: 0", "mine.yaml:1: `version` is 0; expected at least 1."),
        ("corpus: ag_news", "corpos: ag_news", "mine.yaml:4: There is no setting 'corpos'; did you mean 'corpus'?"),
        ("corpus: ag_news\n", "", "mine.yaml:1: `corpus` is missing"),
        ("samples: 5", "sample: 5", "mine.yaml:9: There is no setting 'sample'; did you mean 'samples'?"),
        ("samples: 5", "top_p: 1.5", "mine.yaml:9: `top_p` is 1.5; expected a number above 0, at most 1."),
        ("samples: 5", "{samples: 5, method: beam}", "mine.yaml:9: `method` is beam"),
        ("pooling: last", "pooling: max", "mine.yaml:10: `pooling` is 'max'; expected one of 'mean', 'last', 'auto'."),
        ("prefix: 4", "mauve: {seeds: []}", "mine.yaml:6: `seeds` is empty"),
        (TASK[TASK.index("protocols") :], "protocols: {}\n", "mine.yaml:5: the task has no protocol"),
        (TASK[TASK.index("protocols") :], "protocols: {a: 3}\n", "mine.yaml:5: expected a mapping of settings, got 3"),
    ],
)
def test_a_slip_in_a_task_is_named_with_its_line(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in TASK
    with pytest.raises(UserError) as error:
        task(tmp_path, TASK.replace(old, new))
    assert str(error.value).startswith(str(tmp_path / text.partition(" ")[0]))
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ({"protocol": "papr"}, "'papr'; did you mean 'paper'"),
        ({"overrides": {"prefx": 3}}, "'generation.prefx'; did you mean 'generation.prefix'"),
        ({"overrides": {"sampling": {"sed": 3}}}, "'generation.sampling.sed'; did you mean 'generation.sampling.seed'"),
        ({"overrides": {"top_p": 0.9}}, "'generation.top_p'; did you mean 'generation.sampling.top_p'"),
        ({"overrides": {"prefix": 0}}, "--set generation: `prefix` is 0"),
        ({"overrides": {"sampling": 3}}, "--set generation: `sampling`"),
    ],
)
def test_an_unknown_protocol_or_rule_names_the_nearest(tmp_path: Path, given: Any, nearest: str) -> None:
    with pytest.raises(UserError, match=re.escape(nearest)):
        task(tmp_path, **given)


def suite(tmp_path: Path, text: str = SUITE) -> Suite:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return build(Suite, read_yaml(path), str(path))


def test_a_suite_is_read(tmp_path: Path) -> None:
    found = suite(tmp_path)
    assert (found.name, found.version, found.seeds, found.objectives, found.model) == ("mine", 1, (0,), (), None)
    assert [(r.recipe, r.tasks, dict(r.settings)) for r in found.runs] == [
        ("lm-finetune", ("lm-quick",), {"epochs": 1})
    ]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("recipe: lm", "recpe: lm", "mine.yaml:4: There is no setting 'recpe'; did you mean 'recipe'?"),
        ("tasks: [lm-quick]", "tasks: lm-quick", "mine.yaml:7: `tasks` is 'lm-quick'; expected a list"),
        ("    tasks: [lm-quick]\n", "", "mine.yaml:4: `tasks` is missing"),
        ("version: 1", "version: 1\nprimary: a/b", "mine.yaml:1: `primary` is 'a/b'"),
        ("version: 1", "version: 1\nseeds: [1, 0, 1]", "mine.yaml:1: `seeds` holds 1 twice"),
        (SUITE[SUITE.index("runs") :], "runs: []", "mine.yaml:1: a suite needs at least one run"),
    ],
)
def test_a_slip_in_a_suite_is_named_with_its_line(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in SUITE
    with pytest.raises(UserError) as error:
        suite(tmp_path, SUITE.replace(old, new))
    assert str(error.value).startswith(str(tmp_path / text))


def test_settings_of_a_suite_name_their_line_when_they_are_applied(tmp_path: Path) -> None:
    from emobench.training.recipe import Recipe

    recipe = Recipe(name="r", corpus="c")
    run = suite(tmp_path).runs[0]
    assert override(recipe, run.settings, "--set recipe") == dataclasses.replace(recipe, epochs=1.0)
    slip = suite(tmp_path, SUITE.replace("epochs", "epoch")).runs[0]
    with pytest.raises(UnknownNameError, match=rf"^{tmp_path}/mine.yaml:6: There is no setting 'epoch'; did you mean"):
        override(recipe, slip.settings, "--set recipe")
    wrong = suite(tmp_path, SUITE.replace("epochs: 1", "epochs: -1")).runs[0]
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/mine.yaml:6: `epochs` is -1"):
        override(recipe, wrong.settings, "--set recipe")
