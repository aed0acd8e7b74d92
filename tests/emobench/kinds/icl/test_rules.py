"""Rules of a prompt: what cannot be asked for is refused with its place, and every rule makes another protocol."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import UserError
from emobench.kinds.icl.rules import IclProtocol, fill
from emobench.registry import find_task
from emobench.tasks.spec import Task

TASK = """\
name: mine
kind: icl
version: 1
dataset:
  name: mine
  classes: [neg, pos]
  pool: {split: train}
  test: {split: test}
protocols:
  paper:
    template: '{text} is {label}.'
    labels:
      neg: bad
      pos: good
  other:
    template: 'Review: {text} It is {label}'
    labels: {pos: good, neg: bad}
"""
MADE: dict[str, Any] = {"template": "{text} is {label}.", "labels": {"neg": "bad", "pos": "good"}}


def task(tmp_path: Path, text: str = TASK, **given: Any) -> Task:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return find_task(str(path), **given)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("neg: bad", "neg: '  '", "mine.yaml:11: `labels`: the text of 'neg' is empty"),
        ("pos: good", "pos: bad", "mine.yaml:11: `labels` holds 'bad' twice"),
        ("      pos: good\n", "", "mine.yaml:11: `labels` is {'neg': 'bad'}"),
        ("neg: bad\n", "neg: bad\n      more: so\n", "mine.yaml:11: task mine: `labels` has texts for"),
        ("{text} is", "{txt} is", "mine.yaml:11: task mine: the template or query: There is no field 'txt'"),
        ("{text} is {label}", "{text} is", "`template` is '{text} is.'"),
        ("{text} is {label}", "It is {label}", "`template` is 'It is {label}.'"),
        ("{text} is {label}", "{label}: {text} is {label}", "{label} stands once in it"),
        ("    labels:\n", "    query: [body]\n    labels:\n", "the template or query: There is no field 'body'"),
        ("    labels:\n", "    ties: [neg]\n    labels:\n", "mine.yaml:11: `ties` is ['neg']"),
        ("    labels:\n", "    header: '{label}'\n    labels:\n", "and not in `header`"),
        ("    labels:\n", "    header: '{body}'\n    labels:\n", "There is no field 'body'. Known: text."),
        ("'Review: {text} It is {label}'", "'Review: {tex} It is {label}'", "mine.yaml:16: task mine: the template or"),
        ("kind: icl", "kind: icl\ncorpus: ag_news", "`corpus` is not read by a task of kind icl"),
        (TASK[TASK.index("dataset") : TASK.index("protocols")], "", "mine.yaml:1: `dataset` is missing"),
    ],
)
def test_a_slip_is_named_with_its_task_file_and_line(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in TASK
    with pytest.raises(UserError) as error:
        task(tmp_path, TASK.replace(old, new, 1))
    assert str(error.value).startswith(f"{tmp_path}/mine.yaml:")
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"template": "{txt} {label}"}, "--set icl: task mine: the template or query: There is no field 'txt'"),
        ({"too_long": "cut_right", "scorer": "label"}, "`scorer` is label"),
        ({"seed": -1}, "`seed` holds -1"),
        ({"scorer": "calibrated", "content_free": []}, "`content_free` is empty"),
    ],
)
def test_a_slip_in_an_override_is_named(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError) as error:
        task(tmp_path, overrides=changes)
    assert text in str(error.value)


def test_a_protocol_id_changes_with_every_rule(tmp_path: Path) -> None:
    base = task(tmp_path)
    changes = {
        "template": "{text} was {label}.",
        "labels": {"neg": "bad", "pos": "great"},
        "ties": ["pos", "neg"],
        "header": "Reviews.\n",
        "separator": "\n\n",
        "shots": 7,
        "retriever": "random",
        "encoder": "other",
        "query": ["text", "text"],
        "query_text": "gpt2-decoded",
        "order": "nearest-last",
        "pool": 0.5,
        "held_out": 10,
        "seed": 1,
        "exclude_duplicates": True,
        "scorer": "label",
        "content_free": ["N/A", ""],
        "bos": "one",
        "max_length": 512,
        "too_long": "cut_right",
        "limit": 9,
    }
    assert {*changes, "engine"} == {field.name for field in dataclasses.fields(IclProtocol)}
    ids = [task(tmp_path, overrides={key: value}).protocol_id for key, value in changes.items()]
    assert len({base.protocol_id, *ids}) == len(changes) + 1
    assert task(tmp_path, overrides={"shots": 8}).protocol_id == base.protocol_id


def test_how_losses_are_computed_and_where_an_encoder_lies_are_no_rules(tmp_path: Path) -> None:
    assert task(tmp_path, overrides={"engine": "plain"}).protocol_id == task(tmp_path).protocol_id
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    here, there = (task(tmp_path, overrides={"encoder": str(folder)}) for folder in folders)
    assert here.protocol_id == there.protocol_id != task(tmp_path).protocol_id
    assert str(tmp_path) not in str(here.rules)


def test_the_order_of_labels_is_a_rule_and_that_of_keys_is_none(tmp_path: Path) -> None:
    turned = TASK.replace("      neg: bad\n      pos: good\n", "      pos: good\n      neg: bad\n")
    assert task(tmp_path, turned).protocol_id != task(tmp_path).protocol_id
    tied = turned.replace("    template: '{text}", "    ties: [neg, pos]\n    template: '{text}", 1)
    assert task(tmp_path, tied).protocol_id == task(tmp_path).protocol_id


def test_fields_are_filled_all_at_once_and_other_braces_stay() -> None:
    assert fill("{a} {b} {} {a b}", {"a": "{b}", "b": "{a}"}) == "{b} {a} {} {a b}"


def test_the_fields_of_a_prompt_are_those_of_header_template_and_query() -> None:
    rules = IclProtocol(**{**MADE, "template": "{q} {A} {label}", "header": "{group}:"}, query=("q", "A"))
    assert list(rules.fields) == ["group", "q", "A", "q", "A"]
