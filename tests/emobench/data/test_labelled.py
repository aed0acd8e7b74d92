"""Labelled data: classes by their text, never by a number alone; what belongs to a source is checked there alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, DataError, Missing
from emobench.data.labelled import LabelledData, LabelledSource, LabelledSplit, load_labelled, sampling_units

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOCAL = LabelledSource(
    name="toy", classes=("no", "yes"), pool=LabelledSplit(split="train"), test=LabelledSplit(split="test")
)
HUB = replace(
    LOCAL,
    repo="some/toy",
    names={"0": "no", "1": "yes"},
    pool=LabelledSplit(split="train", files="train.jsonl", rows=3),
    test=LabelledSplit(split="test", files="data/test-*.parquet", rows=2),
)
TRAIN = [{"text": "a", "label": 0}, {"text": "b", "label": 1}, {"text": "c", "label": 1}]
TEST = [{"text": "d", "label": 1}, {"text": "e", "label": 0}]


def named(text: str, name: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "label_name": name, **more}


FIRST = named("x", "no")


def write(folder: Path, name: str, rows: list[Any]) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def load(source: LabelledSource, *folders: Path) -> LabelledData:
    return load_labelled(source, data_dirs=folders, offline=True)


def local(folder: Path, *test: Any, source: LabelledSource = LOCAL, train: Any = FIRST) -> LabelledData:
    write(folder, "toy.train.jsonl", [train])
    write(folder, "toy.test.jsonl", list(test))
    return load(source, folder)


@pytest.fixture
def download(publish: Callable[..., Path]) -> Callable[..., Path]:
    """Lay out the files of HUB as a download leaves them, and return their folder."""

    def downloaded(train: list[Any] = TRAIN, test: list[Any] = TEST) -> Path:
        return publish("some/toy", {"train.jsonl": train, "data/test-00000-of-00001.parquet": test})

    return downloaded


def test_a_class_is_its_name_in_label_name_or_in_label_or_in_a_column_of_the_file(tmp_path: Path) -> None:
    rows = [named("a", "yes"), {"text": "b", "label": "no"}, named("c", "yes", label=0)]
    assert [example.label for example in local(tmp_path, *rows).test] == ["yes", "no", "yes"]
    source = replace(LOCAL, label_name="label_text")
    rows = [{"text": "a", "label": 1, "label_text": "no"}, named("b", "yes")]
    assert [example.label for example in local(tmp_path, *rows, source=source).test] == ["no", "yes"]


@pytest.mark.parametrize("source", [LOCAL, HUB])
def test_numbers_alone_are_refused_in_a_local_file(tmp_path: Path, source: LabelledSource) -> None:
    """Also where the task knows what the numbers of its own source mean: this file may be another copy."""
    with pytest.raises(DataError, match=rf'^{tmp_path}/toy\.test\.jsonl:2: .* 1 .* one of no, yes.* "label_name"'):
        local(tmp_path, named("a", "yes"), {"text": "b", "label": 1}, source=source)


@pytest.mark.parametrize(
    "row",
    [
        named("b", "maybe"),
        {"text": "b"},
        {"text": "b", "label": ["yes"]},
        named("b", "yes", label="no"),
        {"label_name": "yes"},
        named(" \n", "yes"),
        named(3, "yes"),  # type: ignore[arg-type]
        '{"text": "\\ud800", "label_name": "yes"}',
        "[1]",
        "{",
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: Any) -> None:
    with pytest.raises(DataError, match=rf"^{tmp_path}/toy\.test\.jsonl:3: "):
        local(tmp_path, named("fine", "yes"), "", row)


def test_choices_are_fields_and_the_label_their_place(tmp_path: Path) -> None:
    source = LabelledSource(
        name="toy",
        classes=("A", "B"),
        fields=("question",),
        choices="choices",
        label="answer",
        group="subject",
        pool=LabelledSplit(split="train"),
        test=LabelledSplit(split="test"),
    )
    row = {"question": "q", "subject": "high_school_physics", "choices": ["x", "y"], "answer": 1}
    data = local(tmp_path, row, {**row, "answer": "A"}, source=source, train=row)
    first, second = data.test
    assert first.fields == {"question": "q", "A": "x", "B": "y", "group": "high school physics"}
    assert (first.label, first.group, second.label) == ("B", "high_school_physics", "A")
    assert first.text(["question", "B"]) == "q y"
    for bad in (["x"], ["x", 3], "xy", None):
        with pytest.raises(DataError, match=r"toy\.test\.jsonl:1: expected 2 texts in 'choices', got"):
            local(tmp_path, {**row, "choices": bad}, source=source, train=row)
    for number in (2, -1):
        with pytest.raises(DataError, match=rf"toy\.test\.jsonl:1: the class is {number}"):
            local(tmp_path, {**row, "answer": number}, source=source, train=row)


def test_examples_of_one_passage_are_of_one_unit_and_groups_are_units(tmp_path: Path) -> None:
    rows = [named(f"q{i}", "yes", passage=passage, topic="t") for i, passage in enumerate("aab")]
    first = {**FIRST, "passage": "x", "topic": "t"}
    by_passage = local(tmp_path, *rows, source=replace(LOCAL, unit="passage", group="topic"), train=first)
    a, same, other = (example.unit for example in by_passage.test)
    assert a == same != other
    assert a.startswith("passage ")
    by_group = local(tmp_path, *rows, source=replace(LOCAL, group="topic"), train=first)
    assert {example.unit for example in by_group.test} == {"topic t"}
    assert {example.unit for example in local(tmp_path, *rows).test} == {""}
    assert by_passage.fingerprint != by_group.fingerprint
    with pytest.raises(DataError, match="passage"):
        local(tmp_path, named("q", "yes"), source=replace(LOCAL, unit="passage"), train=first)


def test_equal_texts_are_one_unit_whatever_their_labels_and_join_named_ones(tmp_path: Path) -> None:
    rows = [named(f"text {i % 40}", "yes" if i < 100 else "no") for i in range(200)]
    examples = local(tmp_path, *rows).test
    units = sampling_units(examples)
    assert len(set(units.values())) == 40
    for i in range(200):
        assert units[examples[i].id] == units[examples[i % 40].id]
    rows = [
        named(text, "yes", topic=topic)
        for text, topic in (("a", "p"), ("b", "p"), ("b", "q"), ("c", "r"), ("d", "r"), ("e", "s"), ("E", "t"))
    ]
    examples = local(tmp_path, *rows, source=replace(LOCAL, group="topic"), train={**FIRST, "topic": "t"}).test
    units = sampling_units(examples)
    assert [units.get(one.id) for one in examples] == ["topic p"] * 3 + ["topic r"] * 2 + ["topic s"] * 2


def test_a_local_file_takes_the_place_of_a_split(tmp_path: Path, download: Callable[..., Path]) -> None:
    download()
    write(tmp_path / "mine", "toy.train.jsonl", [named("mine", "no")])
    data = load(HUB, tmp_path / "mine")
    assert [example.fields["text"] for example in data.pool] == ["mine"]
    assert [example.fields["text"] for example in data.test] == ["d", "e"]
    assert data.provenance["toy.train"].endswith(" (local: toy.train.jsonl)")
    assert data.provenance["toy.test"].endswith(f" (hub: some/toy@{COMMIT})")
    assert len(data) == 2


def test_an_example_has_an_id_of_its_text_and_its_row_and_knows_its_line(tmp_path: Path) -> None:
    first, second = local(tmp_path, named("same", "yes"), "", named("same", "no")).test
    digest = hashlib.sha256(b"same").hexdigest()[:12]
    assert (first.id, second.id) == (f"{digest}-0", f"{digest}-1")
    assert (first.where, second.where) == (f"{tmp_path}/toy.test.jsonl:1", f"{tmp_path}/toy.test.jsonl:3")


def test_the_fingerprint_sees_texts_classes_and_order_and_not_where_they_are(tmp_path: Path) -> None:
    rows = [named("a", "yes"), named("b", "no")]
    base = local(tmp_path / "1", *rows).fingerprint
    assert local(tmp_path / "2", *rows).fingerprint == base
    assert local(tmp_path / "2", *[{**row, "label": 7, "more": 1} for row in rows]).fingerprint == base
    others = [rows[::-1], rows[:1], [named("a", "no"), rows[1]], [named("ab", "yes"), named("", "no") | {"text": "-"}]]
    found = {local(tmp_path / "3", *other).fingerprint for other in others}
    found.add(local(tmp_path / "4", *rows, train=named("y", "no")).fingerprint)
    assert len(found | {base}) == 6


def test_what_is_not_at_hand_says_where_to_put_it(tmp_path: Path, download: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"toy \(train\) has no source on the hub: put it in DIR/toy\.train\.jsonl"):
        load(LOCAL, tmp_path)
    with pytest.raises(Missing) as missing:
        load(HUB, tmp_path)
    assert (missing.value.item, missing.value.source) == ("data set toy", "some/toy")
    for words in ("DIR/toy.train.jsonl", "--offline"):
        assert words in missing.value.how
    write(tmp_path, "toy.train.jsonl", ["", ""])
    with pytest.raises(DataError, match=r"toy \(train, local: toy\.train\.jsonl\) has no example"):
        load(LOCAL, tmp_path)


def test_the_source_is_read_with_its_own_names(download: Callable[..., Path]) -> None:
    download()
    data = load(HUB)
    assert [(e.fields["text"], e.label) for e in (*data.pool, *data.test)] == [
        ("a", "no"), ("b", "yes"), ("c", "yes"), ("d", "yes"), ("e", "no"),
    ]  # fmt: skip
    assert data.pool[2].where == f"hub: some/toy@{COMMIT}, train.jsonl:3"


def test_texts_may_stand_for_classes_in_the_source(download: Callable[..., Path]) -> None:
    download([{"text": "a", "label": "bad"}])
    source = replace(HUB, names={**HUB.names, "bad": "no"}, pool=replace(HUB.pool, rows=None))
    assert [example.label for example in load(source).pool] == ["no"]


def golden(**classes: str) -> LabelledSource:
    return replace(HUB, golden={hashlib.sha256(k.encode()).hexdigest()[:12]: v for k, v in classes.items()})


def test_sizes_and_golden_rows_are_those_of_the_source_alone(download: Callable[..., Path], tmp_path: Path) -> None:
    download(test=[{"text": "d \n", "label": 1}, TEST[1]])
    load(golden(a="no", d="yes"))  # spaces at a text's ends do not count
    with pytest.raises(DataError, match=rf"says 'yes' .*{COMMIT}, .*-00001\.parquet:1\) that is known to be 'no'"):
        load(golden(a="no", d="no"))
    mine = local(tmp_path / "mine", named("d", "no"), source=golden(d="yes", unknown="yes"))
    assert [example.label for example in mine.test] == ["no"]
    download(TRAIN[:2])
    with pytest.raises(DataError, match=rf"hub: some/toy@{COMMIT} gave 2 rows, expected 3"):
        load(HUB)


def test_golden_rows_in_no_text_are_an_error_where_the_whole_source_was_read(
    download: Callable[..., Path], tmp_path: Path
) -> None:
    download()
    with pytest.raises(DataError, match=r"lacks 1 of the 2 rows of toy .*DIR/toy\.SPLIT\.jsonl"):
        load(golden(a="no", unknown="no"))
    write(tmp_path / "mine", "toy.test.jsonl", [named("d", "no")])  # the row may be of the split that was not read
    assert len(load(golden(a="no", unknown="no"), tmp_path / "mine").pool) == 3


@pytest.mark.parametrize("sha256", ["0" * 64, hashlib.sha256(b"").hexdigest()])
def test_a_file_of_another_digest_or_a_broken_one_is_refused(sha256: str, download: Callable[..., Path]) -> None:
    folder = download()
    digest = hashlib.sha256((folder / "train.jsonl").read_bytes()).hexdigest()
    assert load(replace(HUB, pool=replace(HUB.pool, sha256=digest))).fingerprint == load(HUB).fingerprint
    with pytest.raises(DataError, match=rf"train\.jsonl has another sha256 than {sha256}"):
        load(replace(HUB, pool=replace(HUB.pool, sha256=sha256)))
    (file,) = (folder / "data").iterdir()
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(DataError, match=r"test-00000-of-00001\.parquet is not a whole Parquet file"):
        load(HUB)


@pytest.mark.parametrize(
    "changes", [{"classes": ("no",)}, {"classes": ("no", "no")}, {"names": {"0": "nope"}}, {"golden": {"abc": "nope"}}]
)
def test_a_source_knows_its_classes(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(LOCAL, **changes)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("column", ["label", "label_name"])
def test_a_folder_of_texts_may_have_the_name_of_a_labelled_set(
    tmp_path: Path, order: tuple[int, int], column: str
) -> None:
    texts, labelled = tmp_path / "lm", tmp_path / "icl"
    for split in ("train", "test"):
        write(texts, f"toy.{split}.jsonl", [{"text": "a text without a class"}])
        write(labelled, f"toy.{split}.jsonl", [{"text": split, column: "yes"}])
    data = load(LOCAL, *((texts, labelled)[i] for i in order))
    assert [(example.fields["text"], example.label) for example in data.test] == [("test", "yes")]
    write(texts, "toy.test.jsonl", [{"text": "another", "label": "no"}])
    with pytest.raises(ConfigError, match=r"toy\.test\.jsonl"):
        load(LOCAL, texts, labelled)
