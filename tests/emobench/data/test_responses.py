"""Training rows of conversations: labels, truncation, and packed rows whose losses are those of rows of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MixtralConfig,
    OPTConfig,
    Qwen2Config,
    RecurrentGemmaConfig,
)

from emobench.core.errors import ConfigError, DataError
from emobench.data.conversations import FORMATS
from emobench.data.instruction_sets import Conversations
from emobench.data.packing import IGNORE, WEIGHTS, Counts, Numbers, Packed, RowCollator
from emobench.data.responses import best_fit, response_rows
from emobench.training.model_changes import require_separate_conversations

CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
CHAT += "{% if add_generation_prompt %}[assistant]{% endif %}"
TURNS = [["user", "Name it."], ["assistant", "Paris."], ["user", "Two?"], ["assistant", "1. Paris\n2. Rome"]]
ALPACA = [
    [["user", f"Name city {i}."], ["assistant", text]]
    for i, text in enumerate(["Paris", "London is\nthe capital.", "1. Rome", " Bonn, until 1990 ", "émigré"])
]


@pytest.fixture(scope="module")
def tokenizer(byte_model: Path) -> Any:
    """A token is a byte, or the EOS."""
    found = AutoTokenizer.from_pretrained(byte_model)
    found.chat_template = CHAT
    return found


def rows_of(tokenizer: Any, *rows: list[list[str]], template: str = "alpaca", **given: Any) -> Packed:
    texts = [json.dumps({"turns": row, "input": ""}) for row in rows]
    where = [f"f:{i}" for i, _ in enumerate(rows, 1)]
    read = Conversations("own", "train", texts, "sha256:0", "local: f", where=where)
    return response_rows(read, FORMATS[template](tokenizer), **{"responses": "all", "length": 512, **given})


def test_labels_are_the_tokens_of_responses(tokenizer: Any) -> None:
    (row,) = rows_of(tokenizer, TURNS, template="chat")
    texts = tokenizer.decode([t for t in row["labels"] if t != IGNORE])
    assert texts == "Paris.<eos>1. Paris\n2. Rome<eos>"
    assert (row["labels"][row["labels"] != IGNORE] == row["input_ids"][row["labels"] != IGNORE]).all()


def test_weights_follow_their_conversations_into_packed_rows_and_batches(tokenizer: Any, tmp_path: Path) -> None:
    weights = [1.0, 0.5, 3.0, 0.0, 2.0]
    texts = [json.dumps({"turns": row, "input": ""}) for row in ALPACA]
    where = [f"f:{i}" for i, _ in enumerate(ALPACA, 1)]
    numbers = [{WEIGHTS: Numbers("f", weight)} for weight in weights]
    read = Conversations("own", "train", texts, "sha256:0", "local: f", numbers=numbers, where=where)
    lengths = {}
    for packed in (False, True):
        rows = response_rows(read, FORMATS["alpaca"](tokenizer), responses="all", length=512, packed=packed)
        rows.save(tmp_path)
        rows = Packed.load(tmp_path)
        batch = RowCollator(0)(list(rows))
        assert batch[WEIGHTS].shape == batch["labels"].shape
        counted = batch["labels"] != IGNORE
        found = batch[WEIGHTS][counted]
        lengths[packed] = {weight: int((found == weight).sum()) for weight in weights}
        assert len(rows.first(1)[0][WEIGHTS]) == len(rows[0]["input_ids"])
    assert lengths[False] == lengths[True]
    assert lengths[False] == {w: 1 + len(row[1][1].encode()) for w, row in zip(weights, ALPACA, strict=True)}


def numbered(tokenizer: Any, value: object, **given: Any) -> Packed:
    """Return the rows of a conversation whose two responses have 6 + 1 and 16 + 1 tokens, with a column."""
    texts = [json.dumps({"turns": TURNS, "input": ""})]
    numbers = [{"c": Numbers('f:1: "c"', value)}]
    read = Conversations("own", "train", texts, "sha256:0", "local: f", numbers=numbers, where=["f:1"])
    return response_rows(read, FORMATS["chat"](tokenizer), **{"responses": "all", "length": 512, **given})


def test_numbers_of_responses_and_of_their_tokens_reach_the_targets(tokenizer: Any, tmp_path: Path) -> None:
    tokens = [-float(place) for place in range(17)]
    for given, expected in (([0.5, 2.0], [0.5] * 7 + [2.0] * 17), ([0.5, tokens], [0.5] * 7 + tokens)):
        numbered(tokenizer, given).save(tmp_path)
        batch = RowCollator(0)(list(Packed.load(tmp_path)))
        assert batch["c"][batch["labels"] != IGNORE].tolist() == expected
    # The first has no loss, so that its list is not read.
    (row,) = numbered(tokenizer, [[1.0], tokens], responses="last")
    assert row["c"][row["labels"] != IGNORE].tolist() == tokens
    places = np.flatnonzero(row["labels"] != IGNORE)
    (cut,) = numbered(tokenizer, [0.5, tokens], length=int(places[0]) + 3)
    assert cut["c"][-3:].tolist() == tokens[:3]
    for wrong in (tokens[:-1], [*tokens, 0.0]):
        with pytest.raises(DataError, match=rf'f:1: "c" has {len(wrong)} numbers for 17 tokens of response 2'):
            numbered(tokenizer, [0.5, wrong])


@pytest.mark.parametrize("packed", [True, False])
def test_responses_with_the_token_that_ends_them_are_left_out(tokenizer: Any, packed: bool) -> None:
    texts = ("It is <eos> red.", "It is blue.", "It is <eos>.", "Green.")
    chats = [[["user", "What?"], ["assistant", text]] for text in texts]
    rows = rows_of(tokenizer, *chats, packed=packed)
    assert rows.counts == Counts(whole=2, ended=2)
    assert rows.tokens.tolist() == rows_of(tokenizer, chats[1], chats[3], packed=packed).tokens.tolist()
    with pytest.raises(DataError, match="2 with the token"):
        rows_of(tokenizer, chats[0], chats[2])


def test_what_is_cut_off_is_counted(tokenizer: Any) -> None:
    (row,) = rows_of(tokenizer, TURNS, template="chat")
    places = np.flatnonzero(row["labels"] != IGNORE)
    first, second = int(places[0]), int(places[len("Paris.") + 1])
    found = {n: rows_of(tokenizer, TURNS, TURNS, template="chat", length=n).counts for n in (512, second + 2, second)}
    assert found == {512: Counts(whole=2), second + 2: Counts(shortened=2), second: Counts(shortened=2, lost=2)}
    last = rows_of(tokenizer, TURNS, ALPACA[0], template="chat", responses="last", length=second)
    assert (len(last), last.counts) == (1, Counts(whole=1, dropped=1, lost=1))
    with pytest.raises(DataError, match="No response fits: each of the 1 conversations of own has 4 tokens or more"):
        rows_of(tokenizer, TURNS, template="chat", length=4)
    assert first > 4


def test_packed_rows_hold_whole_conversations(tokenizer: Any) -> None:
    assert best_fit([5, 3, 4, 2, 6, 1], 7) == [[0, 3], [1, 2], [4, 5]]
    alone = rows_of(tokenizer, *ALPACA)
    packed = rows_of(tokenizer, *ALPACA, packed=True, length=2 * max(len(r["input_ids"]) for r in alone))
    assert len(packed) < len(alone)
    parts = []
    for row in packed:
        starts = np.flatnonzero(row["position_ids"] == 0)
        parts += [p.tolist() for p in np.split(row["input_ids"], starts[1:])]
    assert sorted(parts) == sorted(row["input_ids"].tolist() for row in alone)
    assert packed.target_count == alone.target_count


def test_packed_rows_come_back_as_they_were(tokenizer: Any, tmp_path: Path) -> None:
    made = rows_of(tokenizer, *ALPACA, packed=True, length=400)
    made.save(tmp_path)
    back = Packed.load(tmp_path)
    assert json.loads((tmp_path / "responses.json").read_text()) == vars(made.counts)
    for one, other in zip(made, back, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("input_ids", "labels", "position_ids"))
    first = made.first(len(made[0]["input_ids"]))
    assert len(first) == 1
    assert np.array_equal(first[0]["position_ids"], made[0]["position_ids"])


SIZES = {"vocab_size": 420, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDE = {**SIZES, "intermediate_size": 32, "num_key_value_heads": 2, "max_position_embeddings": 512}
CONFIGS = {
    "gpt2": GPT2Config(vocab_size=420, n_positions=512, n_embd=16, n_layer=2, n_head=2),
    "llama": LlamaConfig(**WIDE),
    "qwen": Qwen2Config(**WIDE),
    "gemma": Gemma3TextConfig(**WIDE, head_dim=8, sliding_window=16),
}


def loss_sums(model: Any, rows: Packed) -> tuple[float, int]:
    """Return the sum of the losses of all targets, of all rows in one batch."""
    batch = RowCollator(0)([*rows])
    labels = batch.pop("labels")
    batch.pop("row")
    with torch.no_grad():
        log_prob = model(**batch, use_cache=False).logits[:, :-1].double().log_softmax(-1)
    targets = labels[:, 1:]
    chosen = log_prob.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -float(chosen[targets != IGNORE].sum()), int((targets != IGNORE).sum())


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_packed_losses_equal_unpacked_ones(kind: str, tokenizer: Any) -> None:
    """Without a difference beyond rounding: position ids begin again, and no conversation attends to another."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]).eval()
    require_separate_conversations(model)
    alone, packed = rows_of(tokenizer, *ALPACA), rows_of(tokenizer, *ALPACA, packed=True)
    assert len(packed) < len(alone)
    expected, targets = loss_sums(model, alone)
    found, same = loss_sums(model, packed)
    assert same == targets
    assert found / same == pytest.approx(expected / targets, abs=1e-5)


LEAKING: dict[str, Any] = {
    "opt": OPTConfig(**SIZES, ffn_dim=32, word_embed_proj_dim=16, max_position_embeddings=512),
    "bloom": BloomConfig(vocab_size=420, hidden_size=16, n_layer=2, n_head=2),
    "lfm2": Lfm2Config(**WIDE, layer_types=["conv", "full_attention"], block_ff_dim=32, block_multiple_of=16),
    "mamba": MambaConfig(vocab_size=420, hidden_size=16, num_hidden_layers=2, state_size=4),
    "recurrent gemma": RecurrentGemmaConfig(**WIDE, lru_width=16, block_types=["recurrent", "attention"]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", list(LEAKING))
def test_a_model_that_mixes_conversations_is_refused(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LEAKING[kind], dtype=dtype)
    with pytest.raises(ConfigError, match=r"mixes the conversations .*; set recipe.packing=rows"):
        require_separate_conversations(model)


@pytest.mark.parametrize("kind", [*CONFIGS, "mixtral"])
def test_a_probe_of_half_precision_is_exact_and_leaves_the_weights_alone(kind: str) -> None:
    torch.manual_seed(0)
    config = {**CONFIGS, "mixtral": MixtralConfig(**WIDE, num_local_experts=4)}[kind]
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    require_separate_conversations(model)
    after = model.state_dict()
    assert all(
        torch.equal(weight, after[name]) and weight.dtype == after[name].dtype for name, weight in before.items()
    )
    assert model.training
