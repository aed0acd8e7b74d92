"""The tasks of the suite nlu: every prompt letter by letter, the order of labels, and classes that are known.

Sources: EMO paper, Table 5 (protocol paper); the official repository's icl.py (official-code); OpenCompass's mmlu_ppl.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from emobench.data.labelled import Example, LabelledSource, load_labelled
from emobench.kinds.icl.prompts import Draft
from emobench.kinds.icl.rules import IclProtocol
from emobench.registry import find_suite, find_task
from emobench.tasks.spec import Task

SENTIMENT = {"positive": "positive", "negative": "negative"}
EMOTION = {name: name for name in ("anger", "joy", "optimism", "sadness")}
TOPIC = {name: name for name in ("world", "sports", "business", "science and technology")}
OPINION = {name: name for name in ("objective", "subjective")}
ASKED = {
    "ABBR": "abbreviation",
    "ENTY": "entity",
    "DESC": "description and abstract concept",
    "HUM": "human being",
    "LOC": "location",
    "NUM": "numerical value",
}
# Task -> (prompt, label texts in the order that decides ties).
PAPER: dict[str, tuple[str, dict[str, str]]] = {
    "sst2": ('Review: "<X>" It is <L>.', SENTIMENT),
    "cr": ('Review: "<X>" It is <L>.', SENTIMENT),
    "rotten_tomatoes": ('Review: "<X>" It is <L>.', SENTIMENT),
    "tweet_emotion": ('Tweet: "<X>" It is <L>.', EMOTION),
    "trec": ('Question: "<X>" It is about <L>.', ASKED),
    "subj": ('"<X>" It is <L>.', OPINION),
    "ag_news": ('"<X>" It is about <L>.', TOPIC),
}
OFFICIAL: dict[str, tuple[str, dict[str, str]]] = {
    "sst2": ('Review: "<X>" It is <L>.', SENTIMENT),
    "cr": ("Review: <X> It is <L>.", SENTIMENT),
    "rotten_tomatoes": ("Review: <X> It is <L>", SENTIMENT),
    "tweet_emotion": ("<X> It is <L>.", EMOTION),
    "trec": ('"<X>" It is about <L>.', {**ASKED, "NUM": "numeric value"}),
    "subj": ("<X> It is <L>.", OPINION),
    "ag_news": ('"<X>" It is about <L>.', TOPIC),
}
CASES = [(n, "paper", *c) for n, c in PAPER.items()] + [(n, "official-code", *c) for n, c in OFFICIAL.items()]
NAMES = ("tweet_emotion", "sst2", "trec", "subj", "cr", "rotten_tomatoes", "ag_news", "mmlu")


def rules_of(task: Task) -> IclProtocol:
    assert isinstance(task.protocol, IclProtocol)
    return task.protocol


def source_of(task: Task) -> LabelledSource:
    assert task.dataset is not None
    return task.dataset


def shot(text: str, label: str) -> Example:
    return Example(text, {"text": text}, label)


def test_the_suite_has_the_eight_tasks_of_the_paper() -> None:
    suite = find_suite("nlu")
    assert (suite.version, [run.recipe for run in suite.runs]) == (1, ["continual-wikitext103"])
    assert set(suite.runs[0].tasks) == {*PAPER, "mmlu"}


@pytest.mark.parametrize(("name", "protocol", "prompt", "labels"), CASES)
def test_a_prompt_letter_by_letter(name: str, protocol: str, prompt: str, labels: dict[str, str]) -> None:
    rules = rules_of(find_task(name, protocol=protocol))
    first, last = next(iter(labels)), list(labels)[-1]
    draft = Draft(example=shot("the test", first), shots=(shot("near", last), shot("far", first)))
    shots = "".join(
        prompt.replace("<X>", text).replace("<L>", labels[label]) + "\n"
        for text, label in (("near", last), ("far", first))
    )
    expected = [shots + prompt.replace("<X>", "the test").replace("<L>", text) for text in labels.values()]
    assert [text for text, _ in draft.texts(rules)] == expected
    assert rules.ties == tuple(labels)


@pytest.mark.parametrize(("name", "protocol", "prompt", "labels"), CASES)
def test_the_other_rules_are_those_of_openicl(name: str, protocol: str, prompt: str, labels: dict[str, str]) -> None:
    rules = rules_of(find_task(name, protocol=protocol))
    assert (rules.shots, rules.retriever, rules.encoder) == (8, "dense", "all-mpnet-base-v2")
    assert (rules.order, rules.scorer, rules.query) == ("nearest-first", "prompt", ("text",))
    assert not rules.exclude_duplicates
    official = protocol == "official-code"
    assert rules.query_text == ("gpt2-decoded" if official else "raw")
    # icl.py tells OpenICL of no limit, so that the tokenizer cuts; the label stays in what `paper` scores.
    assert rules.too_long == ("cut_right" if official else "drop_shots")
    assert rules.pool == (0.3 if official and name == "ag_news" else 1.0)


def test_mmlu_is_opencompasss_prompt_byte_by_byte() -> None:
    task = find_task("mmlu")
    rules = rules_of(task)

    def question(text: str, answer: str) -> Example:
        fields = {"question": text, "A": "one", "B": "two", "C": "three", "D": "four", "group": "abstract algebra"}
        return Example(text, fields, answer, "abstract_algebra")

    draft = Draft(example=question("Last?", "D"), shots=(question("First?", "B"), question("Second?", "A")))
    begin = (
        b"The following are multiple choice questions (with answers) about  abstract algebra.\n\n"
        b"First?\nA. one\nB. two\nC. three\nD. four\nAnswer: B\n"
        b"Second?\nA. one\nB. two\nC. three\nD. four\nAnswer: A\n"
        b"Last?\nA. one\nB. two\nC. three\nD. four\nAnswer: "
    )
    assert [text.encode() for text, _ in draft.texts(rules)] == [begin + letter for letter in (b"A", b"B", b"C", b"D")]
    assert (rules.shots, rules.retriever, rules.scorer, rules.ties) == (5, "fixed", "prompt", ("A", "B", "C", "D"))
    assert source_of(task).group == "subject"


def test_numbers_of_the_sources_are_named_as_the_hub_has_them() -> None:
    names = {name: source_of(find_task(name)).names for name in NAMES}
    for name in ("sst2", "cr", "rotten_tomatoes"):
        assert names[name] == {"0": "negative", "1": "positive"}
    assert names["subj"] == {"0": "objective", "1": "subjective"}
    assert names["ag_news"] == dict(zip("0123", TOPIC, strict=True))
    assert names["tweet_emotion"] == dict(zip("0123", EMOTION, strict=True))
    # TREC's numbers differ between copies, and its own names do not.
    assert (names["trec"], source_of(find_task("trec")).label) == ({}, "label_coarse_original")


# The data that is at hand.

AT_HAND = ("sst2", "trec", "subj", "rotten_tomatoes", "ag_news")


@pytest.fixture(scope="module")
def data(real_files: Path) -> Path:
    return real_files / "data" / "icl"


@pytest.mark.parametrize("name", sorted({*NAMES} - {"cr"}))
def test_every_class_of_a_source_has_a_golden_row(name: str) -> None:
    """Of CR no public copy of the repository's own texts was found; its sizes are checked."""
    source = source_of(find_task(name))
    assert set(source.golden.values()) == set(source.classes)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("@user Get Donovan out of your soccer booth. He's awful. He's bitter. "
         "He makes me want to mute the tv. #horrid", "anger"),
        ("What makes you feel #joyful?", "joy"),
        ("The only upside to being deathly ill this week is that I've gotten better at taking pills. #optimism",
         "optimism"),
        ("In need of a change! #restless", "sadness"),
    ],
)  # fmt: skip
def test_the_golden_tweets_are_those_of_tweeteval(text: str, label: str) -> None:
    """cardiffnlp/tweeteval at 8df207a, datasets/emotion: lines 11, 5, 25 and 8 of test_text.txt and test_labels.txt."""
    assert source_of(find_task("tweet_emotion")).golden[hashlib.sha256(text.encode()).hexdigest()[:12]] == label


@pytest.mark.parametrize("name", AT_HAND)
def test_the_data_at_hand_has_the_classes_that_the_task_knows(data: Path, name: str) -> None:
    source = source_of(find_task(name))
    found = load_labelled(source, data_dirs=[data], offline=True)
    assert {e.label for e in found.pool} == {e.label for e in found.test} == set(source.classes)
    assert all("(local: " in origin for origin in found.provenance.values())
    golden = {
        hashlib.sha256(e.fields["text"].strip().encode()).hexdigest()[:12]: e.label for e in (*found.pool, *found.test)
    }
    assert {key: golden[key] for key in source.golden} == source.golden


def test_the_golden_questions_of_mmlu_are_questions_of_mmlu(data: Path, tmp_path: Path) -> None:
    """The STEM subjects at hand are from MMLU's test split."""
    for split in ("dev", "test"):
        (tmp_path / f"mmlu.{split}.jsonl").write_bytes((data / f"mmlu_stem.{split}.jsonl").read_bytes())
    source = source_of(find_task("mmlu"))
    found = load_labelled(source, data_dirs=[tmp_path], offline=True)
    fields = ((e.label, "\x1f".join(text.strip() for text in e.fields.values())) for e in found.test)
    classes = {hashlib.sha256(text.encode()).hexdigest()[:12]: label for label, text in fields}
    assert {key: classes[key] for key in source.golden} == source.golden
