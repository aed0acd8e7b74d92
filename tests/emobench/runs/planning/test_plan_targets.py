"""What a dense target reads, and weights of conversations, are checked when a run is planned, and belong to its key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.errors import ConfigError, ModelError, PluginError, UserError
from emobench.core.settings import parse_overrides, to_plain
from emobench.data.texts import Texts
from emobench.runs.planning.plan import Plan, make_plan
from emobench.runs.planning.request import Request
from emobench.runs.stages.train import known_language

SMALL = {
    "recipe": {"max_length": 32},
    "generation": {"max_length": 32, "prefix": 4, "continuation": 8},
}


def plan(model: Path, data: Path, objective: str, **given: Any) -> Plan:
    chosen: dict[str, Any] = {"suite": "lm-quick", "seeds": (0,), "offline": True, "limit": 30, "settings": SMALL}
    chosen |= {"objectives": (objective,), **given}
    return make_plan(Request(model=str(model), data_dirs=(data,), **chosen))


def oracle(objective: str, **given: Any) -> Plan:
    return make_plan(Request(suite="oracle-language", objectives=(objective,), seeds=(0,), offline=True, **given))


def key(found: Plan) -> str:
    (training,) = found.trainings()
    return training.key


def test_a_teacher_belongs_to_the_key(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(small_model, teacher)
    objective = f"kd-forward(target='{teacher}')"
    first = key(plan(small_model, small_data, objective))
    assert key(plan(small_model, small_data, objective)) == first
    weights = bytearray((teacher / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (teacher / "model.safetensors").write_bytes(weights)
    assert key(plan(small_model, small_data, objective)) != first
    own = plan(small_model, small_data, "kd-forward(target=pretrained)")
    (training,) = own.trainings()
    assert training.facts["objective"]["reads"] == {"pretrained": training.facts["model"]}


def test_a_users_cost_belongs_to_the_key(
    small_model: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "def flat(texts, targets):\n    return [[int(v != t) for v in range(len(texts))] for t in targets]\n"
    file, objective = Path("cost.py"), "0.5*emo(cost='./cost.py:flat') + 0.5*mle"
    with pytest.raises(ConfigError, match=r"no file cost\.py"):
        plan(small_model, small_data, objective)
    file.write_text(text)
    first = key(plan(small_model, small_data, objective, from_scratch=True))
    file.write_text(f"# No code.\n{text}")
    assert key(plan(small_model, small_data, objective, from_scratch=True)) == first
    file.write_text(text.replace("v != t", "v > t"))
    assert key(plan(small_model, small_data, objective, from_scratch=True)) != first
    file.write_text(text.replace("v != t", "v"))
    with pytest.raises(PluginError, match=r"cost\.py"):
        plan(small_model, small_data, objective)
    with pytest.raises(ConfigError, match="cost=digits"):
        plan(small_model, small_data, "ntl")
    np.save("cost.npy", np.zeros((3, 3)))
    with pytest.raises(ConfigError, match=r"cost\.npy"):
        plan(small_model, small_data, "demd(cost='./cost.npy')")


def test_an_unusable_teacher_is_refused(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    with pytest.raises(UserError, match="nowhere"):
        plan(small_model, small_data, "kd-forward(target=nowhere)")
    with pytest.raises(ConfigError, match=r"tiny-oracle is made by the harness .*; with --model tiny-oracle, say"):
        plan(small_model, small_data, "kd-forward(target=tiny-oracle)")
    with pytest.raises(ConfigError, match=r"this model starts from scratch; .*'kd-forward\(target=gpt2\)'"):
        plan(small_model, small_data, "kd-reverse(target=pretrained)", from_scratch=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match="empty"):
        plan(small_model, small_data, f"kd-forward(target='{empty}')")
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer) + 2, n_embd=8, n_layer=1, n_head=1)).save_pretrained(
        tmp_path / "wide"
    )
    tokenizer.save_pretrained(tmp_path / "wide")
    with pytest.raises(ConfigError, match=rf"has {len(tokenizer) + 2} rows; expected {len(tokenizer)}, the vocabulary"):
        plan(small_model, small_data, f"kd-js(target='{tmp_path / 'wide'}')")


def test_the_language_is_known_of_its_own_texts_only(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the distribution of the corpus wikitext2 is not known; .*target=MODEL"):
        plan(small_model, small_data, "kd-forward")
    with pytest.raises(ConfigError, match=r"symbol by symbol, and .* has other symbols; use --model tiny-oracle"):
        plan(small_model, small_data, "kd-forward", suite=None, recipe="oracle-finetune", limit=None,
             settings={"recipe": {"max_length": 32}})  # fmt: skip
    for split in ("train", "validation"):
        (tmp_path / f"oracle-target.{split}.jsonl").write_text(json.dumps({"text": "baba babe"}) + "\n")
    with pytest.raises(ConfigError, match="the distribution of the corpus oracle-target is not known"):
        oracle("kd-forward", data_dirs=(tmp_path,))


def test_the_language_is_that_of_the_corpus(made_runs: Path) -> None:
    (training,) = oracle("demd-dense", runs=made_runs).trainings()
    assert training.facts["objective"]["reads"] == {"pretrained": training.facts["model"]}
    from emobench.data.oracle.language import oracle_language

    assert known_language(training.texts.values()) is oracle_language("target")
    other = Texts("oracle-target", "train", ["x"], "sha256:0", "local: oracle-target.train.jsonl")
    assert known_language([*training.texts.values(), other]) is None
    assert known_language([other]) is None
    assert key(oracle("demd-dense", runs=made_runs)) != key(oracle("demd-dense(target=pretrained)", runs=made_runs))


ROWS = [{"instruction": f"Say {i}.", "output": f"{i}"} for i in range(8)]
ONES = [1] * len(ROWS)
OTHERS = [*ONES[:-1], 2]


@pytest.fixture
def planned(byte_model: Path, tmp_path: Path) -> Callable[..., Plan]:
    """Return a function that plans a training on rows with these weights in the field `trust`."""

    def planned(weights: Sequence[Any] | None, *settings: str, objective: str = "emo", field: str = "trust") -> Plan:
        rows = ROWS if weights is None else [{**r, field: w} for r, w in zip(ROWS, weights, strict=True)]
        (tmp_path / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        given = parse_overrides(["corpus=own", *settings])
        return make_plan(
            Request(
                model=str(byte_model),
                recipe="alpaca-gpt4",
                data_dirs=(tmp_path,),
                settings=given,
                objectives=(objective,),
                seeds=(0,),
                offline=True,
            )
        )

    return planned


def test_a_field_that_is_not_used_changes_no_key(planned: Callable[..., Plan]) -> None:
    assert len({key(planned(weights)) for weights in (None, ONES, OTHERS)}) == 1
    assert "weights" not in to_plain(planned(None).recipes[0])
    assert "weights" in to_plain(planned(ONES, "recipe.weights=trust").recipes[0])


def test_the_setting_and_the_weights_change_the_key(planned: Callable[..., Plan]) -> None:
    used = "recipe.weights=trust"
    found = [key(planned(None)), key(planned(ONES, used)), key(planned(OTHERS, used))]
    found.append(key(planned([w / 2 for w in OTHERS], used)))
    assert len(set(found)) == 4
    assert key(planned(OTHERS, used)) == found[2]


def test_a_number_of_one_token_changes_the_key(planned: Callable[..., Plan]) -> None:
    used = "recipe.columns=[trust]"
    values: list[Any] = [[[0.5, -1.0]]] * 7
    found = [key(planned([*values, [last]], used)) for last in ([0.5, -1.0], [0.5, -1.5])]
    found.append(key(planned([*values, [[0.5, -1.0]]], "recipe.columns=[]")))
    assert len(set(found)) == 3


OWN = """import emobench

class Own(emobench.ModelObjective):
    \"\"\"The loss of the model.\"\"\"

    def loss(self, forward, batch):
        loss = forward(**batch).loss
        return emobench.UnitLosses(loss[None], loss.new_ones(1))
"""


def test_an_objective_that_weighs_its_own_units_is_refused(planned: Callable[..., Plan], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ConfigError, match=r"`recipe.weights` is trust, and .* weighs its own units; drop it"):
        planned(ONES, "recipe.weights=trust", objective=f"{tmp_path}/own.py:Own")
    with pytest.raises(ConfigError, match="trust have numbers for whole texts, and blocks cut them"):
        planned(ONES, "recipe.template=none", "recipe.packing=blocks", "recipe.weights=trust")
