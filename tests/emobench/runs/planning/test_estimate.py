"""Estimates against arithmetic by hand: operations, memory, steps, and their words."""

from __future__ import annotations

from typing import Any

import pytest

from emobench.models.catalog import CATALOG
from emobench.report.numbers import large
from emobench.runs.planning.estimate import (
    computes_in,
    duration,
    gigabytes,
    scoring_memory,
    scoring_operations,
    tokens_and_steps,
    training_memory,
    training_operations,
)
from emobench.training.recipe import Recipe

LLAMA = CATALOG["llama-7b"].facts
N, LAYERS, WIDTH, VOCABULARY = 6_738_415_616, 32, 4096, 32_000


def recipe(**changes: Any) -> Recipe:
    values = {"name": "r", "corpus": "c", "epochs": 1, "batch": 16, "max_length": 256, "lora": True}
    return Recipe(**{**values, **changes})


def test_operations_are_two_a_parameter_and_token_each_way() -> None:
    assert LLAMA is not None
    assert training_operations(LLAMA, 1000, recipe(lora=False)) == 6 * N * 1000
    assert training_operations(LLAMA, 1000, recipe()) == 4 * N * 1000  # no gradient of frozen weights
    assert scoring_operations(LLAMA, 1000) == 2 * N * 1000


def test_memory_of_lora_is_weights_adapters_and_activations() -> None:
    """Queries and values, rank 32; four numbers of 4 bytes for each of them: itself, gradient, two moments."""
    assert LLAMA is not None
    adapters = LAYERS * 2 * 32 * (WIDTH + WIDTH)
    activations = 16 * 256 * LAYERS * WIDTH * 34
    logits = 8 * 16 * 256 * VOCABULARY  # under the most that a chunk holds, 1 GiB
    found = training_memory(LLAMA, recipe(precision="bfloat16", weight_dtype="bfloat16"), costs=False)
    assert found == 2 * N + 16 * adapters + activations + logits
    with_costs = training_memory(LLAMA, recipe(precision="bfloat16", weight_dtype="bfloat16"), costs=True)
    assert with_costs - found == 2 * VOCABULARY * WIDTH
    # Autocast from float32: 4 bytes a weight, and 2 of its copy.
    assert training_memory(LLAMA, recipe(precision="float16"), costs=False) - found == 4 * N
    parts = recipe(precision="bfloat16", weight_dtype="bfloat16", accumulation=4)
    fewer = training_memory(LLAMA, parts, costs=False)
    assert found - fewer == (activations + logits) * 3 / 4


def test_copies_of_the_model_need_memory() -> None:
    """A copy of the model before training has all of its weights; one of an earlier step, those that are trained."""
    assert LLAMA is not None
    for lora, trained in ((False, 4 * N), (True, 4 * LAYERS * 2 * 32 * (WIDTH + WIDTH))):
        trains = recipe(lora=lora, precision="float32")
        found = training_memory(LLAMA, trains, costs=False)
        for copies, more in ((("pretrained",), 4 * N), (("snapshot",), trained), (("snapshot",) * 2, 2 * trained)):
            assert training_memory(LLAMA, trains, costs=False, copies=copies) - found == more


def test_memory_of_a_full_training_is_weights_gradients_and_two_moments() -> None:
    assert LLAMA is not None
    activations = 16 * 256 * LAYERS * WIDTH * 34
    half = {"lora": False, "precision": "bfloat16", "weight_dtype": "bfloat16"}
    found = training_memory(LLAMA, recipe(**half), costs=False)
    assert found == 4 * 2 * N + activations + 8 * 16 * 256 * VOCABULARY
    larger = training_memory(LLAMA, recipe(**half, batch=64), costs=False)
    assert larger == 4 * 2 * N + 4 * activations + (1 << 30)
    assert scoring_memory(LLAMA, "float32") == 4 * N + 8 * 4096 * VOCABULARY


def test_sampled_tokens_keep_keys_and_values() -> None:
    assert LLAMA is not None
    held = scoring_memory(LLAMA, "bfloat16", sampled=1000) - scoring_memory(LLAMA, "bfloat16")
    assert held == 2 * 1000 * LAYERS * WIDTH * 2


def test_without_autocast_a_training_computes_in_its_weights_precision() -> None:
    assert computes_in(recipe(precision="float32", weight_dtype="bfloat16")) == "bfloat16"
    assert computes_in(recipe(precision="float16")) == "float16"


@pytest.mark.parametrize(
    ("tokens", "changes", "expected"),
    [
        (256 * 32, {}, (32 * 255, 2)),
        (256 * 33 + 255, {}, (33 * 255, 3)),
        (256 * 32, {"epochs": 3}, (3 * 32 * 255, 6)),
        (10**9, {"max_tokens": 4_000_000}, (15_625 * 255, 977)),
        (100, {"max_tokens": 4_000_000}, (255, 1)),
    ],
)
def test_tokens_and_steps_of_blocks(tokens: int, changes: dict[str, Any], expected: tuple[int, int]) -> None:
    for texts in (None, 7):  # blocks are cut from all texts together
        assert tokens_and_steps(recipe(**changes), tokens, texts) == expected


@pytest.mark.parametrize(
    ("tokens", "texts", "changes", "expected"),
    [
        (10_000, 33, {}, (10_000, 3)),  # whatever max_length is
        (10_000, 33, {"epochs": 1.5, "accumulation": 4}, (15_000, 5)),
        (10_000, 33, {"max_tokens": 5_000}, (5_000, 1)),
        (10_000, 33, {"max_tokens": 20_000}, (10_000, 3)),
        (10_000, None, {}, (10_000, None)),
        (10_000, 33, {"packing": "conversations"}, (39 * 255, 3)),
    ],
)
def test_tokens_and_steps_of_rows(
    tokens: int, texts: int | None, changes: dict[str, Any], expected: tuple[int, int | None]
) -> None:
    found = recipe(**{"packing": "rows", "template": "alpaca", **changes})
    assert tokens_and_steps(found, tokens, texts) == expected


def test_words() -> None:
    assert [duration(s) for s in (0, 0.4, 59, 60, 3600 * 1.5, 86400, 86400 * 2.5)] == [
        *("0 s", "under 1 s", "59 s", "1.0 min", "1.5 h", "24.0 h", "2.5 days")
    ]
    assert [large(n) for n in (12, 999_999_999, 1234, 141_500_000, 2.2e9)] == ["12", "1B", "1.23k", "142M", "2.2B"]
    assert [gigabytes(n) for n in (4e6, 438e6, 13.5e9)] == ["under 0.01 GB", "0.44 GB", "13.5 GB"]


def test_what_a_model_is_downloaded_as() -> None:
    """Half precision for LLaMA: 13.5 GB."""
    assert CATALOG["llama-7b"].hub_bytes == 2 * N
    assert CATALOG["gpt2"].hub_bytes == 4 * 124_439_808
    assert CATALOG["tiny-oracle"].hub_bytes is None
