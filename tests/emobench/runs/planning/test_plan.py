"""A stage's key changes with all that determines its output, and with nothing else."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.core.settings import parse_overrides
from emobench.runs.planning import ingredients
from emobench.runs.planning.ingredients import base_model, check_recipe
from emobench.runs.planning.plan import Plan, make_plan
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import recipe_of

SMALL = ("recipe.max_length=32", "generation.max_length=32", "generation.prefix=4", "generation.continuation=8")


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    shutil.copytree(small_model, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    shutil.copytree(small_data, tmp_path / "data")
    return tmp_path / "data"


def plan(model: Path, data: Path, *settings: str, **given: Any) -> Plan:
    chosen = {"suite": "lm-quick", "objectives": ("tailr",), "seeds": (0,), "offline": True, "limit": 30, **given}
    overrides = parse_overrides(
        [*(s for s in SMALL if s.split("=")[0] not in [x.split("=")[0] for x in settings]), *settings]
    )
    return make_plan(Request(model=str(model), data_dirs=(data,), settings=overrides, **chosen))


def keys(found: Plan) -> tuple[str, str, str]:
    """Return the keys of the only training, generation and scores of a plan."""
    (training,), (task,) = found.trainings(), found.evaluated()
    return training.key, task.generation.key, task.scores.key


@pytest.fixture(scope="module")
def base(small_model: Path, small_data: Path) -> tuple[str, str, str]:
    """The keys of the request that no test changes."""
    return keys(plan(small_model, small_data))


def test_the_same_request_has_the_same_keys(
    model: Path, data: Path, base: tuple[str, str, str], tmp_path: Path
) -> None:
    assert keys(plan(model, data)) == base
    assert keys(plan(model, data, runs=tmp_path / "elsewhere", leaderboard=tmp_path / "b", command="x")) == base
    shutil.copytree(model, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("not part of a model")
    assert keys(plan(tmp_path / "copy", data)) == base
    with (data / "other.train.jsonl").open("a") as file:
        file.write('{"text": "of another corpus"}\n')
    assert keys(plan(model, data)) == base


TRAINING: dict[str, dict[str, Any]] = {
    "objective": {"objectives": ("mle",)},
    "parameter": {"objectives": ("tailr(gamma=0.2)",)},
    "seed": {"seeds": (1,)},
    "dtype": {"dtype": "bfloat16"},
    "scratch": {"from_scratch": True},
}
RECIPE = (
    *("recipe.epochs=2", "recipe.batch=16", "recipe.accumulation=2", "recipe.learning_rate=1e-4"),
    *("recipe.schedule=cosine", "recipe.warmup=0.1", "recipe.weight_decay=0.1", "recipe.clip=1"),
    *("recipe.optimizer=adafactor", "recipe.gradient_checkpointing=true", "recipe.max_length=16"),
    *("recipe.packing=rows", "recipe.ends=true", "recipe.max_tokens=640", "recipe.precision=bfloat16"),
    *("recipe.lora=true", "recipe.lora={rank: 4}", "recipe.select=last", "recipe.engine=reference"),
    *("recipe.cost_rows=8", "recipe.weight_dtype=bfloat16", "recipe.compile=true", "recipe.liger=true"),
    *("recipe.corpus=other", "recipe.validation_tokens=64", "recipe.trainer.adam_beta2=0.95"),
)


def test_a_training_key_changes_with_every_fact(model: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingredients, "require_liger_on", lambda device: None)
    planned = plan(model, data)
    found = {"base": keys(planned)}
    found |= {name: keys(plan(model, data, **change)) for name, change in TRAINING.items()}
    found |= {setting: keys(plan(model, data, setting)) for setting in RECIPE}
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 1e-4}))
    found["configuration"] = keys(plan(model, data))
    tokenizer = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "note": "another"}))
    found["tokenizer"] = keys(plan(model, data))
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # the last bit of the last weight
    (model / "model.safetensors").write_bytes(weights)
    found["weights"] = keys(plan(model, data))
    for split in ("train", "validation"):
        with (data / f"wikitext2.{split}.jsonl").open("a") as file:
            file.write('{"text": "bar", "document": "added"}\n')
        found[split] = keys(plan(model, data))
    # With --dtype bfloat16 a training has the same precision as with the recipe's setting; its evaluation has another.
    assert found["dtype"][0] == found["recipe.precision=bfloat16"][0]
    assert found["dtype"][1] != found["recipe.precision=bfloat16"][1]
    del found["dtype"]
    for stage in range(3):  # whatever changes the training changes all that follows from it
        assert len({of[stage] for of in found.values()}) == len(found)
    recipe = {setting.split(".")[1].split("=")[0] for setting in RECIPE}
    # mask_until and columns need packing=rows; template, responses and weights need conversations
    fields = set(planned.recipes[0].__dataclass_fields__)
    assert recipe == fields - {"name", "mask_until", "columns", "template", "responses", "weights"}
    masked = ("recipe.packing=rows", "recipe.mask_until=bar")
    assert keys(plan(model, data, *masked))[0] not in {of[0] for of in found.values()}


GENERATES = (
    *("generation.prefix=5", "generation.continuation=9", "generation.margin=1", "generation.joiner=' '"),
    *("generation.without=['==']", "generation.sampling.seed=1", "generation.sampling.samples=2"),
    *("generation.split=validation", "generation.sampling.top_p=0.9"),
)
SCORES = (
    *("mauve.seeds=[7]", "generation.max_length=16", "generation.test_blocks=2", "mauve.pooling=last"),
    *("generation.mauve.max_length=32", "oracle.scope=continuation"),
)


def test_a_rule_changes_the_stages_that_it_decides(
    small_model: Path, small_data: Path, base: tuple[str, str, str]
) -> None:
    """Samples are kept where only a metric changes."""
    for setting in (*GENERATES, *SCORES):
        other = keys(plan(small_model, small_data, setting))
        assert [one != old for one, old in zip(other, base, strict=True)] == [False, setting in GENERATES, True]


def test_test_texts_and_limits_change_the_evaluation_alone(model: Path, data: Path, base: tuple[str, str, str]) -> None:
    fewer = keys(plan(model, data, limit=20))
    assert fewer[0] == base[0]
    assert fewer[1:] != base[1:]
    with (data / "wikitext2.test.jsonl").open("a") as file:
        file.write('{"text": "bar", "document": "added"}\n')
    longer = keys(plan(model, data))
    assert longer[0] == base[0]
    assert longer[1] != base[1]
    assert longer[2] != base[2]


def test_an_encoders_weights_are_part_of_a_scores_key(model: Path, data: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    shutil.copytree(model, encoder)
    setting = (f"mauve.featurizer={encoder}", "mauve.max_length=48")
    base = keys(plan(model, data, *setting))
    weights = bytearray((encoder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (encoder / "model.safetensors").write_bytes(weights)
    other = keys(plan(model, data, *setting))
    assert other[:2] == base[:2]
    assert other[2] != base[2]


def test_what_finds_shots_is_part_of_a_generations_key(
    byte_model: Path, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(*settings: str) -> str:
        overrides = parse_overrides(["tasks=sst2", *settings])
        request = Request(
            suite="nlu", model=str(byte_model), objectives=("pretrained",), data_dirs=(labelled,), settings=overrides
        )
        (task,) = make_plan(request).evaluated()
        return task.generation.key

    found = key("icl.retriever=bm25")
    assert found == key("icl.retriever=bm25", "icl.scorer=label")
    assert found != key("icl.retriever=bm25(k1=1.2)")
    none = key("icl.retriever=bm25", "icl.shots=0")
    other = {"bm25s": "99.0.1"}
    monkeypatch.setattr("emobench.core.versions.version", lambda name: other.get(name) or version(name))
    assert found != key("icl.retriever=bm25")
    assert none == key("icl.retriever=bm25", "icl.shots=0")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("prefix=9000",), "9007 tokens, and model reads at most 48; give shorter generation.prefix"),
        (("prefix=41", "bos=one"), "49 tokens, and model reads at most 48; give shorter generation.prefix"),
        (("max_length=49",), "49 tokens, and model reads at most 48; add --set generation.max_length=48"),
    ],
)
def test_what_the_model_cannot_read_is_answered_by_its_cause(
    model: Path, data: Path, settings: tuple[str, ...], text: str
) -> None:
    with pytest.raises(ConfigError) as error:
        plan(model, data, *(f"generation.{setting}" for setting in settings))
    assert text in str(error.value)
    assert ("max_length=48" in str(error.value)) == settings[0].startswith("max_length")


def test_a_featurizer_with_a_shorter_context_is_refused_before_any_training(model: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match=r"256 tokens, and model reads at most 48; add --set mauve.max_length=48"):
        plan(model, data, f"mauve.featurizer={model}")


def test_an_oracle_with_a_shorter_context_is_refused_before_any_training(
    model: Path, data: Path, tmp_path: Path
) -> None:
    found = plan(model, data, f"oracle.model={model}")
    assert [sorted(planned.models) for planned in found.evaluated()] == [["oracle"]]
    oracle = tmp_path / "oracle"
    shutil.copytree(model, oracle)
    config = json.loads((oracle / "config.json").read_text())
    (oracle / "config.json").write_text(json.dumps({**config, "n_positions": 11}))
    with pytest.raises(ConfigError, match=r"12 tokens, and oracle reads at most 11;.* or oracle.model"):
        plan(model, data, f"oracle.model={oracle}")


@pytest.mark.parametrize(
    ("device", "lora", "precision"),
    [("cpu", "true", "float32"), ("cuda:1", "true", "float16"), ("cuda", "false", "bfloat16")],
)
def test_continual_training_computes_as_the_papers_code_does(device: str, lora: str, precision: str) -> None:
    request = Request(suite="nlu", device=device, settings=parse_overrides([f"recipe.lora={lora}"]))
    assert recipe_of(request, "continual-wikitext103", {}).precision == precision


@pytest.mark.parametrize(
    ("device", "dtype", "settings", "refused"),
    [
        ("cuda", "auto", ("precision=float16", "lora=true", "weight_dtype=bfloat16"), None),
        ("cuda", "auto", ("precision=float16", "lora=false"), None),
        ("cuda", "auto", ("precision=float16", "lora=false", "weight_dtype=bfloat16"), "gradients must be float32"),
        ("cpu", "bfloat16", (), None),
        ("cpu", "float16", (), "scales its loss on a CUDA device"),
    ],
)
def test_gradients_that_cannot_be_scaled_are_refused_before_any_training(
    small_model: Path, device: str, dtype: Any, settings: tuple[str, ...], refused: str | None
) -> None:
    """PyTorch's GradScaler takes no float16 gradients, and on a GPU none of bfloat16."""
    changed = parse_overrides(["recipe.max_length=16", *(f"recipe.{setting}" for setting in settings)])
    request = Request(suite="nlu", device=device, dtype=dtype, settings=changed, offline=True)
    model, recipe = base_model(str(small_model), request), recipe_of(request, "continual-wikitext103", {})
    if dtype != "auto":  # for evaluations: the trained weights stay float32
        assert (recipe.precision, recipe.weight_dtype, model.options.dtype) == (dtype, "float32", dtype)
    if refused is None:
        check_recipe(model, recipe)
        return
    with pytest.raises(ConfigError, match=refused):
        check_recipe(model, recipe)


def test_a_cost_model_of_another_vocabulary_is_refused_before_any_training(
    model: Path, data: Path, tmp_path: Path
) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(model)
    config.vocab_size += 3
    other = tmp_path / "other"
    AutoModelForCausalLM.from_config(config).save_pretrained(other)
    AutoTokenizer.from_pretrained(model).save_pretrained(other)
    with pytest.raises(ConfigError, match=r"the head of .*other has \d+ rows; expected \d+, the vocabulary of"):
        plan(model, data, objectives=("mle", f"emo(cost='{other}')"))


def test_a_corpus_that_nothing_reads_is_refused(model: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match="--set corpus: "):
        make_plan(Request(suite="oracle-language", objectives=("pretrained",), settings={"corpus": "other"}))


def test_an_untrained_featurizer_needs_weights(model: Path, data: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(model, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(
        ConfigError, match=r"mauve\.featurizer is 'pretrained', the model before training, and bare has no"
    ):
        plan(bare, data, objectives=("mle",), from_scratch=True)
    settings = (f"mauve.featurizer={model}", "mauve.max_length=32", "oracle.model=pretrained")
    with pytest.raises(ConfigError, match=r"oracle\.model is 'pretrained', .* --set oracle\.model=MODEL"):
        plan(bare, data, *settings, objectives=("mle",), from_scratch=True)


def test_the_source_of_an_objective_is_part_of_its_key(model: Path, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "loss.py"
    base_class = "class My(emobench.StatisticsObjective):"
    code = f"import emobench\n\n{base_class}\n    def loss(self, s):\n        return -s.log_prob\n"
    path.write_text(code)
    base = keys(plan(model, data, objectives=(f"{path}:My",)))
    path.write_text(code.replace("-s", "-2 * s"))
    assert keys(plan(model, data, objectives=(f"{path}:My",)))[0] != base[0]


def test_objectives_share_nothing_but_the_base_model(model: Path, data: Path) -> None:
    found = plan(model, data, objectives=("mle", "emo", "pretrained"), seeds=(0, 1))
    assert [row.label.partition("(")[0] for row in found.rows] == ["mle", "emo", "pretrained"]
    assert [len(row.runs) for row in found.rows] == [2, 2, 1]
    trainings = [training.key for training in found.trainings()]
    assert len(set(trainings)) == len(trainings) == 4
    scores = [task.scores.key for _, run in found.rows_and_runs() for task in run.tasks()]
    assert len(set(scores)) == len(scores) == 5


def test_what_another_request_has_read_is_not_read_again(model: Path, data: Path, tmp_path: Path) -> None:
    first = plan(model, data)
    second = make_plan(replace(first.request, objectives=("mle",), limit=20), known=first.ingredients)
    assert second.model is first.model
    assert second.trainings()[0].texts["train"] is first.trainings()[0].texts["train"]
    assert keys(second) == keys(plan(model, data, objectives=("mle",), limit=20))

    other = shutil.copytree(data, tmp_path / "other")
    with (other / "wikitext2.train.jsonl").open("a") as file:
        file.write('{"text": "one more text", "document": "one more"}\n')
    elsewhere = make_plan(replace(first.request, data_dirs=(other,)), known=first.ingredients)
    assert keys(elsewhere) == keys(plan(model, other)) != keys(first)
