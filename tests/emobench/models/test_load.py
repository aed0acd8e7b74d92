"""Whole models load to the same logits; everything else is refused with a sentence, before weights are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from emobench.core.errors import Missing, ModelError, UnknownNameError
from emobench.models.convert import convert_bin
from emobench.models.device import LoadOptions
from emobench.models.model import Model

IDS = torch.arange(40)[None]


def save_tokenizer(folder: Path, size: int) -> None:
    vocabulary = {**{f"w{i}": i for i in range(size - 1)}, "</s>": size - 1}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="</s>").save_pretrained(folder)


def make_model(kind: str, rows: int = 60) -> Any:
    torch.manual_seed(1)
    if kind == "gpt2":  # tied head
        return GPT2LMHeadModel(GPT2Config(vocab_size=rows, n_embd=16, n_layer=1, n_head=2, n_positions=64)).eval()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=rows, max_position_embeddings=48, **sizes)).eval()


@pytest.fixture(params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make_model(request.param).save_pretrained(tmp_path / request.param)
    save_tokenizer(tmp_path / request.param, 60)
    return tmp_path / request.param


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    make_model("gpt2").save_pretrained(tmp_path / "m")
    save_tokenizer(tmp_path / "m", 60)
    return tmp_path / "m"


def model_of(folder: Path, **options: Any) -> Model:
    return Model(str(folder), LoadOptions(offline=True, **options))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_a_saved_model_loads_to_the_same_logits_and_prints_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded = model_of(folder).load()
    assert capfd.readouterr() == ("", "")
    assert torch.equal(logits(loaded.model), logits(make_model(folder.name)))
    assert not loaded.model.training
    assert loaded.tokenizer("w3 w5")["input_ids"] == [3, 5]
    assert model_of(folder).name == folder.name


def test_the_facts_are_those_of_the_model(folder: Path) -> None:
    facts = model_of(folder).facts
    assert facts.parameters == make_model(folder.name).num_parameters()
    assert facts.vocabulary == 60
    assert (facts.width, facts.layers) == (make_model(folder.name).config.hidden_size, 1)
    assert facts.context == {"gpt2": 64, "llama": 48}[folder.name]


def test_sharded_weights_load(gpt2: Path) -> None:
    (gpt2 / "model.safetensors").unlink()
    make_model("gpt2").save_pretrained(gpt2, max_shard_size="4KB")
    shards = sorted(gpt2.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert torch.equal(logits(model_of(gpt2).load().model), logits(make_model("gpt2")))
    shards[0].unlink()
    with pytest.raises(ModelError, match=f"lacks {shards[0].name}, which"):
        _ = model_of(gpt2).facts


def test_dtype_and_device(gpt2: Path) -> None:
    assert model_of(gpt2, dtype="bfloat16").load().model.transformer.wte.weight.dtype == torch.bfloat16
    with pytest.raises(UnknownNameError, match="no dtype 'bf16'"):
        model_of(gpt2, dtype="bf16").load()
    with pytest.raises(ModelError, match="--device tpux is unknown"):
        model_of(gpt2, device="tpux").load()
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="no CUDA device is available"):
            model_of(gpt2, device="cuda").load()


def test_from_scratch_is_fixed_by_its_seed_and_needs_no_weights(gpt2: Path) -> None:
    (gpt2 / "model.safetensors").unlink()
    before = torch.random.get_rng_state()
    drawn = [logits(model_of(gpt2).load(seed=seed).model) for seed in (3, 3, 4)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ModelError, match=r"no weights in .*--from-scratch"):
        model_of(gpt2).load()


@pytest.mark.parametrize(
    ("file", "words"),
    [("config.json", "no config.json"), ("tokenizer.json", "no tokenizer"), ("model.safetensors", "no weights")],
)
def test_a_folder_that_lacks_a_part_is_refused(gpt2: Path, file: str, words: str) -> None:
    (gpt2 / file).unlink()
    for part in ("facts", "model", "tokenizer")[: 2 if file == "model.safetensors" else 3]:
        with pytest.raises(ModelError, match=f"The model m has {words}"):
            getattr(model_of(gpt2), part)


def test_tokenizers_that_do_not_belong_to_the_head_are_refused(tmp_path: Path) -> None:
    make_model("gpt2", rows=1_100).save_pretrained(tmp_path)
    for size, words in ((1_101, "ids up to 1100, but the model's head has 1100 rows"), (75, "1025 more than its tok")):
        save_tokenizer(tmp_path, size)
        with pytest.raises(ModelError, match=words):
            _ = model_of(tmp_path).facts
    for size in (1_100, 76):  # 1,024 rows of padding are the most
        save_tokenizer(tmp_path, size)
        assert model_of(tmp_path).facts.vocabulary == 1_100


def test_broken_files_are_refused(gpt2: Path) -> None:
    weights = gpt2 / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"model\.safetensors of m is not a whole safetensors file"):
        _ = model_of(gpt2).facts
    weights.write_bytes(whole)
    config = (gpt2 / "config.json").read_text()
    for text in ('{"model_type": "no-such-model"}', '{"model_type": "t5"}'):
        (gpt2 / "config.json").write_text(text)
        with pytest.raises(ModelError, match=r"config\.json of m gives no causal model"):
            _ = model_of(gpt2).facts
    (gpt2 / "config.json").write_text(config)
    assert model_of(gpt2).tokenizer("w7")["input_ids"] == [7]
    (gpt2 / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="tokenizer of m could not be read"):
        _ = model_of(gpt2).facts


@pytest.mark.parametrize("method", ["bitsandbytes", "fp8", "gptq"])
def test_a_quantised_folder_is_refused_while_planning(gpt2: Path, method: str) -> None:
    """A change of their type would take the codes of FP8 for weights."""
    file = gpt2 / "config.json"
    quantised = {"quantization_config": {"quant_method": method, "load_in_4bit": True}}
    file.write_text(json.dumps(json.loads(file.read_text()) | quantised))
    with pytest.raises(ModelError, match=method):
        _ = model_of(gpt2).facts


@pytest.mark.parametrize("seen", [True, False, None])
def test_a_decoder_whose_tokens_see_those_after_them_is_refused(tmp_path: Path, seen: Any) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"num_key_value_heads": 1, "head_dim": 8, "layer_types": ["full_attention"]}
    config = AutoConfig.for_model("gemma3_text", vocab_size=60, max_position_embeddings=48, **sizes, **more)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, 60)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"use_bidirectional_attention": seen}))
    if seen:
        with pytest.raises(ModelError, match="see those after them"):
            _ = model_of(tmp_path).facts
    else:
        assert model_of(tmp_path).facts.context == 48


def test_a_model_without_a_limit_has_no_context(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24}
    config = AutoConfig.for_model("xlnet", vocab_size=60, **sizes)  # its limit is -1
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, 60)
    assert model_of(tmp_path).facts.context is None


def test_weights_that_do_not_fit_the_configuration_are_refused(gpt2: Path) -> None:
    weights = gpt2 / "model.safetensors"
    whole = load_file(weights)

    def change(**tensors: torch.Tensor | None) -> None:
        new = {key.replace("__", "."): tensor for key, tensor in {**whole, **tensors}.items() if tensor is not None}
        save_file({**new}, weights, metadata={"format": "pt"})

    assert "lm_head.weight" not in whole  # a tied head may be absent
    change(**{"transformer.h.0.ln_1.weight": None})
    with pytest.raises(ModelError, match=r"lack transformer\.h\.0\.ln_1\.weight"):
        model_of(gpt2).load()
    change(**{"transformer.h.1.ln_1.weight": torch.ones(16)})
    with pytest.raises(ModelError, match=r"without a use for it, transformer\.h\.1\.ln_1\.weight"):
        model_of(gpt2).load()
    change(**{"transformer.h.0.ln_1.weight": torch.ones(17)})
    with pytest.raises(ModelError, match=r"in another shape, transformer\.h\.0\.ln_1\.weight"):
        model_of(gpt2).load()
    change(**{"transformer.wte.weight": torch.ones(61, 16)})
    with pytest.raises(ModelError, match="hold no tensor of 60 x 16"):
        _ = model_of(gpt2).facts


def test_a_bin_is_refused_with_the_command_that_converts_it_and_the_command_works(folder: Path) -> None:
    state = make_model(folder.name).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    out = folder.parent / "out"
    with pytest.raises(ModelError, match=rf"emobench models convert {folder} OUT"):
        _ = model_of(folder).facts
    assert convert_bin(folder, out) == out
    assert torch.equal(logits(model_of(out).load().model), logits(make_model(folder.name)))
    assert not list(out.glob("*.bin"))
    with pytest.raises(ModelError, match="exists; give a folder that does not"):
        convert_bin(folder, out)


def test_sharded_bins_convert(gpt2: Path, tmp_path: Path) -> None:
    state = make_model("gpt2").state_dict()
    (gpt2 / "model.safetensors").unlink()
    names = {key: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, key in enumerate(state)}
    for file in set(names.values()):
        torch.save({key: state[key] for key in state if names[key] == file}, gpt2 / file)
    (gpt2 / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    convert_bin(gpt2, tmp_path / "out")
    assert torch.equal(logits(model_of(tmp_path / "out").load().model), logits(make_model("gpt2")))
    (gpt2 / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(ModelError, match=r"lacks pytorch_model-00002-of-00002\.bin"):
        convert_bin(gpt2, tmp_path / "other")


class Harmful:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("harm"),))


def test_a_bin_that_would_run_code_is_refused(gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Harmful()}, gpt2 / "pytorch_model.bin")
    with pytest.raises(ModelError, match="could not be read as weights only"):
        convert_bin(gpt2, tmp_path / "out")
    assert not (tmp_path / "harm").exists()
    (gpt2 / "pytorch_model.bin").write_bytes(b"no pickle at all")
    with pytest.raises(ModelError, match="could not be read as weights only"):
        convert_bin(gpt2, tmp_path / "out")
    torch.save({"weight": torch.ones(2), "step": 3}, gpt2 / "pytorch_model.bin")
    with pytest.raises(ModelError, match="something else than named tensors"):
        convert_bin(gpt2, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_identity_of_a_folder_is_that_of_the_files_that_count(gpt2: Path, tmp_path: Path) -> None:
    first = model_of(gpt2).identity
    assert set(first["files"]) >= {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}
    copy = tmp_path / "copy"
    shutil.copytree(gpt2, copy)
    (copy / "README.md").write_text("a note")
    assert model_of(copy).identity == first
    changed = load_file(copy / "model.safetensors")
    changed["transformer.wte.weight"][0, 0] += 1
    save_file(changed, copy / "model.safetensors", metadata={"format": "pt"})
    second = model_of(copy).identity
    assert second != first
    save_tokenizer(copy, 59)
    assert model_of(copy).identity not in (first, second)


def test_a_hub_model_loads_from_the_cache_and_is_known_by_its_commit(
    gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--org--name"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    shutil.copytree(gpt2, repo / "snapshots" / commit)
    assert model_of(Path("org/name")).identity == {"kind": "hub", "repo": "org/name", "commit": commit}
    assert torch.equal(logits(model_of(Path("org/name")).model), logits(make_model("gpt2")))
    (repo / "snapshots" / commit / "model.safetensors").unlink()
    with pytest.raises(Missing, match=f"hf download org/name --revision {commit}"):
        model_of(Path("org/name")).load()


def test_the_harness_made_model_has_to_be_made_first() -> None:
    with pytest.raises(ModelError, match="made by the harness at its first run"):
        model_of("tiny-oracle").load()
