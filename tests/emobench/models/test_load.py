"""Whole models load to the same logits; everything else is refused with a sentence, before weights are read."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import huggingface_hub
import pytest
import torch
from huggingface_hub import HfApi, constants
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    OPTConfig,
)

from emobench.core.errors import Missing, ModelError, UnknownNameError
from emobench.models import hub
from emobench.models.convert import convert_bin
from emobench.models.device import LoadOptions
from emobench.models.encoder import find_encoder
from emobench.models.model import Model
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request

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


def model_of(folder: Path | str, use: Literal["lm", "features"] = "lm", **options: Any) -> Model:
    return Model(str(folder), LoadOptions(offline=True, **options), use)


def refused(folder: Path | str, words: str, part: str = "facts", **options: Any) -> None:
    with pytest.raises(ModelError, match=words):
        getattr(model_of(folder, **options), part)


def reconfigure(folder: Path, name: str = "config.json", **changes: Any) -> None:
    file = folder / name
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


OPT = OPTConfig(
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    vocab_size=60,
    ffn_dim=16,
    word_embed_proj_dim=16,
    max_position_embeddings=48,
)
OUTSIDE = ("embed_tokens", "embed_positions", "lm_head")
"""What the safetensors of OPT that the hub converts lack: transformers, issue 43159."""
REPO, COMMIT = "facebook/opt-tiny", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def opt(write: Callable[[str, Any], Path]) -> Path:
    return write("opt-tiny", OPT)


def without_embeddings(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not any(part in name for part in OUTSIDE)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def as_bin(folder: Path) -> None:
    """Add weights as facebook's repositories have them: a .bin of the decoder, whose head is the embedding."""
    weights = load_file(folder / "model.safetensors")
    torch.save({name.removeprefix("model."): tensor for name, tensor in weights.items()}, folder / "pytorch_model.bin")


def test_opt_without_embeddings_and_head_is_refused(opt: Path) -> None:
    as_bin(opt)
    without_embeddings(opt)
    refused(opt, f"no tensor of 60 x 16, .*emobench models convert {opt} OUT")
    out = convert_bin(opt, opt.with_name("out"))
    whole = model_of(out).load().model
    assert torch.equal(whole.lm_head.weight, whole.model.decoder.embed_tokens.weight)
    (opt / "pytorch_model.bin").unlink()
    refused(opt, r"not whole.*Copy the whole model, or save it again")


def bin_alone(folder: Path) -> None:
    as_bin(folder)
    (folder / "model.safetensors").unlink()


@pytest.fixture
def published(opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has the files of a folder as a model; what is downloaded is in the cache, too."""
    snapshot = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def model_info(*_: object, **given: Any) -> Any:
        assert given["files_metadata"]
        files = [SimpleNamespace(rfilename=file.name, size=file.stat().st_size) for file in opt.iterdir()]
        return SimpleNamespace(sha=COMMIT, siblings=files)

    def headers(*_: object, **given: Any) -> Any:
        assert given["revision"] == COMMIT
        weights = load_file(opt / "model.safetensors")
        tensors = {name: SimpleNamespace(shape=list(tensor.shape)) for name, tensor in weights.items()}
        return SimpleNamespace(files_metadata={"model.safetensors": SimpleNamespace(tensors=tensors)})

    def download(repo: str, *, allow_patterns: list[str], **_: Any) -> str:
        snapshot.mkdir(parents=True, exist_ok=True)
        for pattern in allow_patterns:
            for file in opt.glob(pattern):
                shutil.copyfile(file, snapshot / file.name)
        return str(snapshot)

    hub.published_weights.cache_clear()
    monkeypatch.setattr(HfApi, "model_info", model_info)
    monkeypatch.setattr(HfApi, "get_safetensors_metadata", headers)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)


NAME = f"{REPO}@{COMMIT}"


@pytest.mark.usefixtures("published")
def test_a_whole_repository_passes_and_no_weight_is_fetched(tmp_path: Path) -> None:
    assert Model(NAME).facts.vocabulary == 60
    assert not list((tmp_path / "hub").rglob("*.safetensors"))


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (
            bin_alone,
            rf"{COMMIT}\) publishes no .*: pytorch_model\.bin\..*{COMMIT} --local-dir FOLDER",
        ),
        (without_embeddings, r"no tensor of 60 x 16.* emobench models convert"),
    ],
)
def test_a_repository_that_is_not_whole_is_refused_while_planning(prepare: Any, words: str, opt: Path) -> None:
    prepare(opt)
    with pytest.raises(ModelError, match=words):
        _ = Model(NAME).facts
    # From its configuration alone it can be made.
    assert Model(NAME, LoadOptions(from_scratch=True)).facts.vocabulary == 60


@pytest.mark.usefixtures("published")
def test_offline_a_model_without_its_weights_stops_the_plan_and_is_a_download_of_the_dry_run(
    command: Callable[..., Any], small_data: Path, tmp_path: Path
) -> None:
    _ = Model(NAME).facts  # it leaves the configuration and the tokenizer in the cache
    with pytest.raises(Missing) as missing:
        model_of(NAME).require_files()
    assert (missing.value.item, missing.value.source) == (f"model {NAME}", REPO)
    assert f"hf download {REPO} --revision {COMMIT}" in missing.value.how
    given = ("--model", NAME, "--objective", "mle", "--data-dir", small_data, "--runs", tmp_path / "runs", "--offline")
    command("train", *given, "--set", "recipe.max_length=32").refused(f"Not on this machine: model {NAME}")
    shown = command("train", *given, "--set", "recipe.max_length=32", "--dry-run", "--json").json
    assert [line["what"] for line in shown["plan"] if line["stage"] == "missing"] == [f"model {NAME} from {REPO}"]


@pytest.mark.usefixtures("published")
def test_a_hub_that_gives_nothing_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(HfApi, "model_info", fails)
    with pytest.raises(ModelError, match=r"The hub gave nothing for facebook/opt-tiny .*no route.*--offline"):
        _ = Model(NAME).facts


def test_the_dry_run_of_a_model_that_is_known_as_bin_says_what_to_convert(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    done = command("run", "--model", "opt-125m", "--objective", "mle", "--suite", "generation", "--dry-run").ok()
    said = " ".join(done.out.split())
    assert "opt-125m cannot be used as it is published: facebook/opt-125m has no safetensors at commit 27dcfa74" in said
    assert "emobench models convert FOLDER OUT" in said


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_model, tmp_path / "model"))


def save_adapter(base: Path, folder: Path) -> None:
    """Save an adapter that changes what its base computes."""
    torch.manual_seed(0)
    lora = LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True)
    with warnings.catch_warnings(action="ignore"):
        made: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name:
                weight.normal_()
    made.save_pretrained(folder)


def test_an_adapter_beside_the_weights_is_refused_wherever_a_model_is_read(model: Path, small_data: Path) -> None:
    """Transformers would apply it, under the same digests: training from it was a traceback."""
    before = model_of(model).identity
    save_adapter(model, model)
    assert model_of(model).identity == before
    for use, part in (("lm", "facts"), ("lm", "model"), ("lm", "tokenizer"), ("features", "facts")):
        with pytest.raises(ModelError, match="holds an adapter"):
            getattr(model_of(model, use), part)  # type: ignore[arg-type]
    for objective in ("pretrained", "mle"):
        with pytest.raises(ModelError, match="holds an adapter"):
            make_plan(Request(suite="lm-quick", objectives=(objective,), model=str(model), data_dirs=(small_data,)))


@pytest.mark.parametrize("name", ["../outside.safetensors", "/elsewhere.safetensors", "part/model.safetensors"])
def test_weights_lie_beside_their_index(name: str, model: Path) -> None:
    shutil.copy(model / "model.safetensors", model.parent / "outside.safetensors")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte": name}}))
    refused(model, f"names '{name}', which is not a file in its folder")


def test_a_configuration_that_names_other_weights_is_refused(model: Path) -> None:
    shutil.copy(model / "model.safetensors", model / "other.safetensors")
    reconfigure(model, transformers_weights="other.safetensors")
    refused(model, r"takes its weights from `transformers_weights`: 'other.safetensors'")


def versioned_config(folder: Path) -> Any:
    """Return what decides: a layer's epsilon of the configuration that this version of transformers reads."""
    shutil.copy(folder / "config.json", folder / "config.4.0.0.json")
    reconfigure(folder, "config.4.0.0.json", layer_norm_epsilon=0.5)
    reconfigure(folder, configuration_files=["config.4.0.0.json"])
    return lambda: AutoModelForCausalLM.from_pretrained(folder).config.layer_norm_epsilon


def versioned_tokenizer(folder: Path) -> Any:
    reconfigure(folder, "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.json"])
    shutil.copy(folder / "tokenizer.json", folder / "tokenizer.4.0.json")
    return lambda: AutoTokenizer.from_pretrained(folder).get_vocab()


@pytest.mark.parametrize(
    ("prepare", "file", "old", "new"),
    [
        (versioned_config, "config.4.0.0.json", "0.5", "0.25"),
        (versioned_tokenizer, "tokenizer.4.0.json", '"bar"', '"rab"'),
    ],
)
def test_files_of_a_version_of_transformers_count(
    prepare: Callable[[Path], Any], file: str, old: str, new: str, model: Path
) -> None:
    read = prepare(model)
    before, known = read(), model_of(model).identity
    text = (model / file).read_text()
    assert old in text
    (model / file).write_text(text.replace(old, new))
    assert read() != before
    assert model_of(model).identity != known


@pytest.mark.parametrize("name", ["spiece.model", "own/code.py", "code.py", "vocab.tiktoken", "generation_config.json"])
def test_every_file_that_may_be_read_counts(name: str, model: Path) -> None:
    before = model_of(model).identity
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("{}")
    assert model_of(model).identity["files"].keys() == before["files"].keys() | {name}


def test_an_encoder_has_its_own_weights_alone(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "modules.json").write_text(json.dumps([{"path": "", "type": "sentence_transformers.models.Transformer"}]))
    (folder / "model.safetensors").touch()
    (folder / "0_Router" / "part").mkdir(parents=True)
    before = find_encoder(str(folder), offline=True).identity
    (folder / "0_Router" / "part" / "config.json").write_text("{}")
    assert find_encoder(str(folder), offline=True).identity != before
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="holds an adapter"):
        find_encoder(str(folder), offline=True)
    (folder / "adapter_config.json").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../w.safetensors"}}')
    with pytest.raises(ModelError, match="which is not a file in its folder"):
        find_encoder(str(folder), offline=True)


@pytest.mark.parametrize("state", [{}, {1: [1.0]}, {("a", "b"): [1.0]}, {"w": [1.0], 2: [1.0]}])
def test_a_state_without_named_tensors_is_not_converted(state: dict[Any, Any], model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").unlink()
    torch.save({name: torch.tensor(values) for name, values in state.items()}, model / "pytorch_model.bin")
    with pytest.raises(ModelError):
        convert_bin(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "tokenizer_config.json", "README.md", "extra.txt"])
def test_a_link_out_of_the_folder_is_not_followed(name: str, model: Path, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, model / "pytorch_model.bin")
    outside = tmp_path / "outside"
    torch.save({"w": torch.ones(2)}, outside)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(outside)
    with pytest.raises(ModelError, match="outside of the folder"):
        convert_bin(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_to_the_blobs_of_the_hubs_cache_are_its_files(model: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "c0ffee", tmp_path / "models--x" / "blobs"
    shutil.copytree(model, snapshot)
    blobs.mkdir()
    torch.save({"w": torch.ones(2)}, blobs / "b10b")
    (snapshot / "pytorch_model.bin").symlink_to(blobs / "b10b")
    assert convert_bin(snapshot, tmp_path / "out").is_dir()
