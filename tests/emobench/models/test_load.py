"""Whole models load to the same logits; everything else is refused with a sentence, before weights are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, LlamaConfig

from emobench.core.errors import Missing, ModelError, UnknownNameError
from emobench.models.convert import convert_bin
from emobench.models.device import LoadOptions
from emobench.models.model import Model

IDS = torch.arange(40)[None]
SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIGS: dict[str, Any] = {
    "gpt2": GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2, n_positions=64),  # a tied head
    "llama": LlamaConfig(vocab_size=60, max_position_embeddings=48, **SIZES),  # type: ignore[arg-type]
}
Save = Callable[[Path, int], None]


def made(config: Any) -> Any:
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture
def write(tmp_path: Path, save_tokenizer: Save) -> Callable[[str, Any], Path]:
    """Write a model and its tokenizer of 60 ids to a folder."""

    def written(name: str, config: Any) -> Path:
        made(config).save_pretrained(tmp_path / name)
        save_tokenizer(tmp_path / name, 60)
        return tmp_path / name

    return written


@pytest.fixture(params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, write: Callable[[str, Any], Path]) -> Path:
    return write(request.param, CONFIGS[request.param])


@pytest.fixture
def gpt2(write: Callable[[str, Any], Path]) -> Path:
    return write("m", CONFIGS["gpt2"])


def model_of(folder: Path | str, **options: Any) -> Model:
    return Model(str(folder), LoadOptions(offline=True, **options))


def refused(folder: Path | str, words: str, part: str = "facts", **options: Any) -> None:
    with pytest.raises(ModelError, match=words):
        getattr(model_of(folder, **options), part)


def reconfigure(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_a_saved_model_loads_to_the_same_logits_and_prints_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loaded, expected = model_of(folder).load(), made(CONFIGS[folder.name])
    assert capfd.readouterr() == ("", "")
    assert torch.equal(logits(loaded.model), logits(expected))
    assert not loaded.model.training
    assert loaded.tokenizer("w3 w5")["input_ids"] == [3, 5]
    facts = model_of(folder).facts
    assert (facts.parameters, facts.vocabulary, facts.width, facts.layers) == (expected.num_parameters(), 60, 16, 1)
    assert facts.context == {"gpt2": 64, "llama": 48}[folder.name]


def test_sharded_weights_load(gpt2: Path) -> None:
    (gpt2 / "model.safetensors").unlink()
    made(CONFIGS["gpt2"]).save_pretrained(gpt2, max_shard_size="4KB")
    shards = sorted(gpt2.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert torch.equal(logits(model_of(gpt2).load().model), logits(made(CONFIGS["gpt2"])))
    shards[0].unlink()
    refused(gpt2, f"lacks {shards[0].name}, which")


def test_dtype_and_device(gpt2: Path) -> None:
    assert model_of(gpt2, dtype="bfloat16").load().model.transformer.wte.weight.dtype == torch.bfloat16
    with pytest.raises(UnknownNameError, match="no dtype 'bf16'"):
        model_of(gpt2, dtype="bf16").load()
    refused(gpt2, "--device tpux is unknown", "model", device="tpux")
    if not torch.cuda.is_available():
        refused(gpt2, "cuda is unknown or not available", "model", device="cuda")


def test_from_scratch_is_fixed_by_its_seed_and_needs_no_weights(gpt2: Path) -> None:
    (gpt2 / "model.safetensors").unlink()
    before = torch.random.get_rng_state()
    drawn = [logits(model_of(gpt2).load(seed=seed).model) for seed in (3, 3, 4)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.random.get_rng_state(), before)
    refused(gpt2, r"no weights in .*--from-scratch", "model")


@pytest.mark.parametrize(
    ("file", "words"),
    [("config.json", "no config.json"), ("tokenizer.json", "no tokenizer"), ("model.safetensors", "no weights")],
)
def test_a_folder_that_lacks_a_part_is_refused(gpt2: Path, file: str, words: str) -> None:
    (gpt2 / file).unlink()
    for part in ("facts", "model", "tokenizer")[: 2 if file == "model.safetensors" else 3]:
        refused(gpt2, f"The model m has {words}", part)


def test_tokenizers_that_do_not_belong_to_the_head_are_refused(
    write: Callable[[str, Any], Path], save_tokenizer: Save
) -> None:
    folder = write("m", GPT2Config(vocab_size=1_100, n_embd=16, n_layer=1, n_head=2, n_positions=64))
    for size, words in ((1_101, "ids up to 1100, but the model's head has 1100 rows"), (75, "1025 more than its tok")):
        save_tokenizer(folder, size)
        refused(folder, words)
    for size in (1_100, 76):  # 1,024 rows of padding are the most
        save_tokenizer(folder, size)
        assert model_of(folder).facts.vocabulary == 1_100


def test_broken_files_are_refused(gpt2: Path) -> None:
    weights, config = gpt2 / "model.safetensors", (gpt2 / "config.json").read_text()
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused(gpt2, r"model\.safetensors of m is not a whole safetensors file")
    weights.write_bytes(whole)
    for text in ('{"model_type": "no-such-model"}', '{"model_type": "t5"}'):
        (gpt2 / "config.json").write_text(text)
        refused(gpt2, r"config\.json of m gives no causal model")
    (gpt2 / "config.json").write_text(config)
    assert model_of(gpt2).tokenizer("w7")["input_ids"] == [7]
    (gpt2 / "tokenizer.json").write_text("{")
    refused(gpt2, "tokenizer of m could not be read")


@pytest.mark.parametrize("method", ["bitsandbytes", "fp8", "gptq"])
def test_a_quantised_folder_is_refused_while_planning(gpt2: Path, method: str) -> None:
    """A change of their type would take the codes of FP8 for weights."""
    reconfigure(gpt2, quantization_config={"quant_method": method, "load_in_4bit": True})
    refused(gpt2, method)


@pytest.mark.parametrize("seen", [True, False, None])
def test_a_decoder_whose_tokens_see_those_after_them_is_refused(seen: Any, write: Callable[[str, Any], Path]) -> None:
    more = {"num_key_value_heads": 1, "head_dim": 8, "layer_types": ["full_attention"], "max_position_embeddings": 48}
    folder = write("m", AutoConfig.for_model("gemma3_text", vocab_size=60, **SIZES, **more))
    reconfigure(folder, use_bidirectional_attention=seen)
    if seen:
        refused(folder, "see those after them")
    else:
        assert model_of(folder).facts.context == 48


def test_a_model_without_a_limit_has_no_context(write: Callable[[str, Any], Path]) -> None:
    sizes = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 24}
    config = AutoConfig.for_model("xlnet", vocab_size=60, **sizes)  # its limit is -1
    assert model_of(write("m", config)).facts.context is None


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("transformer.h.0.ln_1.weight", None, "lacks transformer"),
        ("transformer.h.1.ln_1.weight", torch.ones(16), "without a use for it, transformer"),
        ("transformer.h.0.ln_1.weight", torch.ones(17), "in another shape, transformer"),
        ("transformer.wte.weight", torch.ones(61, 16), "hold no tensor of 60 x 16"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_refused(gpt2: Path, name: str, tensor: Any, words: str) -> None:
    weights = load_file(gpt2 / "model.safetensors")
    assert "lm_head.weight" not in weights  # a tied head may be absent
    kept = {key: value for key, value in {**weights, name: tensor}.items() if value is not None}
    save_file(kept, gpt2 / "model.safetensors", metadata={"format": "pt"})
    refused(gpt2, words, "model")


def test_a_bin_is_refused_with_the_command_that_converts_it_and_the_command_works(folder: Path) -> None:
    model = made(CONFIGS[folder.name])
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    out = folder.parent / "out"
    refused(folder, rf"emobench models convert {folder} OUT")
    assert convert_bin(folder, out) == out
    assert torch.equal(logits(model_of(out).load().model), logits(model))
    assert not list(out.glob("*.bin"))
    with pytest.raises(ModelError, match="exists; give a folder that does not"):
        convert_bin(folder, out)


def test_sharded_bins_convert(gpt2: Path, tmp_path: Path) -> None:
    model = made(CONFIGS["gpt2"])
    state = model.state_dict()
    (gpt2 / "model.safetensors").unlink()
    names = {key: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, key in enumerate(state)}
    for file in set(names.values()):
        torch.save({key: state[key] for key in state if names[key] == file}, gpt2 / file)
    (gpt2 / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    convert_bin(gpt2, tmp_path / "out")
    assert torch.equal(logits(model_of(tmp_path / "out").load().model), logits(model))
    (gpt2 / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(ModelError, match=r"lacks pytorch_model-00002-of-00002\.bin"):
        convert_bin(gpt2, tmp_path / "other")


class Harmful:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("harm"),))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"weight": Harmful()}, "could not be read as weights only"),
        (b"no pickle at all", "could not be read as weights only"),
        ({"weight": torch.ones(2), "step": 3}, "something else than named tensors"),
    ],
)
def test_a_bin_that_would_run_code_is_refused(
    content: Any, words: str, gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        (gpt2 / "pytorch_model.bin").write_bytes(content)
    else:
        torch.save(content, gpt2 / "pytorch_model.bin")
    with pytest.raises(ModelError, match=words):
        convert_bin(gpt2, tmp_path / "out")
    assert not (tmp_path / "harm").exists()
    assert not (tmp_path / "out").exists()


def test_the_identity_of_a_folder_is_that_of_the_files_that_count(
    gpt2: Path, tmp_path: Path, save_tokenizer: Save
) -> None:
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
    commit, repo = "0123456789abcdef0123456789abcdef01234567", tmp_path / "hub" / "models--org--name"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    shutil.copytree(gpt2, repo / "snapshots" / commit)
    assert model_of("org/name").identity == {"kind": "hub", "repo": "org/name", "commit": commit}
    assert torch.equal(logits(model_of("org/name").model), logits(made(CONFIGS["gpt2"])))
    (repo / "snapshots" / commit / "model.safetensors").unlink()
    with pytest.raises(Missing, match=f"hf download org/name --revision {commit}"):
        model_of("org/name").load()


def test_the_harness_made_model_has_to_be_made_first() -> None:
    refused("tiny-oracle", "made by the harness at its first run", "model")
