"""Which examples of lm-evaluation-harness were sampled together."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.tasks.lm_eval_numbers import sampling_units


def test_questions_on_one_passage_are_one_unit() -> None:
    documents = {"0": {"passage": "A.", "question": "x"}, "1": {"passage": "A."}, "2": {"passage": "B."}, "3": None}
    units = sampling_units(documents)
    assert units.keys() == {"0", "1"}
    assert len(set(units.values())) == 1


def test_questions_of_several_subjects_are_of_their_subject() -> None:
    documents = {f"{subject}/{i}": {"subject": subject} for subject in ("anatomy", "virology") for i in range(3)}
    assert sampling_units(documents) == {key: f"subject {key.split('/')[0]}" for key in documents}
    # Of one subject the questions were sampled.
    assert sampling_units({key: value for key, value in documents.items() if value["subject"] == "anatomy"}) == {}


@pytest.mark.parametrize("document", [None, "text", {}, {"passage": " "}, {"passage": 3}, {"premise": ["a"]}])
def test_documents_that_name_nothing_shared_are_units_of_their_own(document: Any) -> None:
    assert sampling_units({"0": document, "1": document}) == {}
