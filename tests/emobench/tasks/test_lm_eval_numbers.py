"""Which examples of lm-evaluation-harness were sampled together."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.tasks.lm_eval_numbers import sample_contents, sampling_units


def test_questions_on_one_passage_are_one_unit() -> None:
    documents = {"0": {"passage": "A.", "question": "x"}, "1": {"passage": "A."}, "2": {"passage": "B."}, "3": None}
    units = sampling_units(documents, {})
    assert units.keys() == {"0", "1"}
    assert len(set(units.values())) == 1


def test_questions_of_several_subjects_are_of_their_subject() -> None:
    documents = {f"{subject}/{i}": {"subject": subject} for subject in ("anatomy", "virology") for i in range(3)}
    assert sampling_units(documents, {}) == {key: f"subject {key.split('/')[0]}" for key in documents}
    # Of one subject the questions were sampled.
    assert sampling_units({key: one for key, one in documents.items() if one["subject"] == "anatomy"}, {}) == {}


@pytest.mark.parametrize(
    "name", ["flores_passage", "Passage", "passage_text", "passageText", "story_id", "articleId", "CONTEXT"]
)
def test_a_passage_is_known_by_a_word_of_its_fields_name(name: str) -> None:
    documents = {str(i): {name: value, "question": f"q{i}"} for i, value in enumerate(("A.", "B.", "A."))}
    units = sampling_units(documents, {})
    assert units.keys() == {"0", "2"}
    assert len(set(units.values())) == 1


def test_a_number_of_a_passage_is_its_name_where_there_is_no_text() -> None:
    documents = {str(i): {"passage_id": i // 2, "question": f"q{i}"} for i in range(4)}
    assert len(set(sampling_units(documents, {}).values())) == 2
    texts = {key: {**document, "passage": "A."} for key, document in documents.items()}
    assert len(set(sampling_units(texts, {}).values())) == 1


def test_a_kind_of_passage_is_none() -> None:
    """BBQ's documents have the kind of a context before the context itself."""
    documents = {}
    for i in range(8):
        kind = "ambig" if i % 2 else "disambig"
        documents[str(i)] = {"context_condition": kind, "context": f"It is {i // 2}.", "question": f"q{i}"}
    assert len(set(sampling_units(documents, {}).values())) == 4


def test_documents_of_a_picture_and_a_label_differ_by_their_number() -> None:
    samples = {str(i): {"doc": {"id": i, "image": "<image>", "answer": "ABCD"[i % 4]}} for i in range(8)}
    contents = {key: sample_contents(sample) for key, sample in samples.items()}
    assert len({digest for digests in contents.values() for digest in digests}) == 8
    copies = {str(i): {"doc": {"id": i, "question": "What is the same?"}} for i in range(8)}
    assert len({digest for sample in copies.values() for digest in sample_contents(sample)}) == 9


@pytest.mark.parametrize("name", ["contextual", "history", "passages_read", "question"])
def test_other_fields_are_no_passages(name: str) -> None:
    assert sampling_units({str(i): {name: "A."} for i in range(3)}, {}) == {}


@pytest.mark.parametrize("document", [None, "text", {}, {"passage": " "}, {"passage": 3}, {"premise": ["a"]}])
def test_documents_that_name_nothing_shared_are_units_of_their_own(document: Any) -> None:
    assert sampling_units({"0": document, "1": document}, {}) == {}


def test_samples_of_one_document_or_of_equal_arguments_are_one_unit() -> None:
    asked = {"gen_args_0": {"arg_0": "Q: 1 + 1", "arg_1": {"until": []}}}
    samples = {
        "0": {"doc_hash": "a", "doc": {"n": 0}, "arguments": asked},
        "1": {"doc_hash": "b", "doc": {"n": 1}, "arguments": asked},  # the same question under another number
        "2": {"doc_hash": "b", "doc": {"n": 1}, "arguments": {**asked, "gen_args_1": {}}},
        "3": {"doc": {"n": 3}, "arguments": []},  # nothing that was read is known
        "4": {"doc": {"n": 4}, "arguments": []},
        "5": {"doc": {"n": 3}, "arguments": [["", "text"]]},
    }
    documents = {example: sample["doc"] for example, sample in samples.items()}
    units = sampling_units(documents, {example: sample_contents(sample) for example, sample in samples.items()})
    assert [sorted(e for e in units if units[e] == unit) for unit in dict.fromkeys(units.values())] == [
        ["0", "1", "2"],
        ["3", "5"],
    ]
