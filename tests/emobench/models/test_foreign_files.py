"""No file changes what is read from a model's folder and not what identifies it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from emobench.core.errors import ModelError
from emobench.models.convert import convert_bin
from emobench.models.device import LoadOptions
from emobench.models.encoder import find_encoder
from emobench.models.model import Model
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request


@pytest.fixture
def model(small_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_model, tmp_path / "model"))


def model_of(folder: Path, **more: Any) -> Model:
    return Model(str(folder), LoadOptions(offline=True), **more)


def facts(folder: Path) -> Mapping[str, Any]:
    return model_of(folder).identity


def refused(folder: Path, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        _ = model_of(folder).facts


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
    before = facts(model)
    save_adapter(model, model)
    assert facts(model) == before
    for use, part in (("lm", "facts"), ("lm", "model"), ("lm", "tokenizer"), ("features", "facts")):
        with pytest.raises(ModelError, match=r"holds an adapter \(adapter_config\.json\); expected a whole model"):
            getattr(model_of(model, use=use), part)
    for objective in ("pretrained", "mle"):
        with pytest.raises(ModelError, match="holds an adapter"):
            make_plan(Request(suite="lm-quick", objectives=(objective,), model=str(model), data_dirs=(small_data,)))


@pytest.mark.slow
def test_an_adapter_alone_is_merged_as_its_error_says(model: Path, tmp_path: Path) -> None:
    save_adapter(model, tmp_path / "adapter")
    with pytest.raises(ModelError, match="holds an adapter") as error:
        _ = model_of(tmp_path / "adapter").facts
    code = re.search(r'python -c "(.*)"   Give OUT', str(error.value))
    assert code is not None
    text = code[1]
    for name, place in (("BASE", model), ("ADAPTER", tmp_path / "adapter"), ("OUT", tmp_path / "out")):
        text = text.replace(f"'{name}'", repr(str(place)))
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)
    merged, base = (model_of(p).load().model for p in (tmp_path / "out", model))
    ids = torch.tensor([[2, 3, 4, 5]])
    assert not torch.allclose(merged(ids).logits, base(ids).logits)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/elsewhere.safetensors", "part/model.safetensors"])
def test_weights_lie_beside_their_index(name: str, model: Path) -> None:
    shutil.copy(model / "model.safetensors", model.parent / "outside.safetensors")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte": name}}))
    refused(model, f"names '{name}', which is not a file in its folder")


def test_a_configuration_that_names_other_weights_is_refused(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    shutil.copy(model / "model.safetensors", model / "other.safetensors")
    (model / "config.json").write_text(json.dumps({**config, "transformers_weights": "other.safetensors"}))
    refused(model, r"takes its weights from `transformers_weights`: 'other.safetensors'")


def versioned_config(folder: Path) -> Any:
    """Return what decides: a layer's epsilon of the configuration that this version of transformers reads."""
    config = json.loads((folder / "config.json").read_text())
    own = {**config, "layer_norm_epsilon": 0.5}
    (folder / "config.4.0.0.json").write_text(json.dumps(own))
    (folder / "config.json").write_text(json.dumps({**config, "configuration_files": ["config.4.0.0.json"]}))
    return lambda: AutoModelForCausalLM.from_pretrained(folder).config.layer_norm_epsilon


def versioned_tokenizer(folder: Path) -> Any:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "fast_tokenizer_files": ["tokenizer.4.0.json"]})
    )
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
    before, known = read(), facts(model)
    text = (model / file).read_text()
    assert old in text
    (model / file).write_text(text.replace(old, new))
    assert read() != before
    assert facts(model) != known


@pytest.mark.parametrize("name", ["spiece.model", "own/code.py", "code.py", "vocab.tiktoken", "generation_config.json"])
def test_every_file_that_may_be_read_counts(name: str, model: Path) -> None:
    before = facts(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text("{}")
    assert facts(model)["files"].keys() == before["files"].keys() | {name}


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
