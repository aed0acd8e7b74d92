"""Weights that are not whole, or not safetensors, are known from names in headers, here and on the hub."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import HfApi, constants
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    OPTConfig,
)

from emobench.core.errors import Missing, ModelError
from emobench.models import hub
from emobench.models.convert import convert_bin
from emobench.models.device import LoadOptions
from emobench.models.model import Model

ROWS = 60
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": ROWS}
OPT = OPTConfig(**SIZES, ffn_dim=16, word_embed_proj_dim=16, max_position_embeddings=48)
OUTSIDE = ("embed_tokens", "embed_positions", "lm_head")
"""What the safetensors of OPT that the hub converts lack: transformers, issue 43159."""
REPO, COMMIT = "facebook/opt-tiny", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def opt(tmp_path: Path, save_tokenizer: Callable[[Path, int], None]) -> Path:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(OPT).save_pretrained(tmp_path / "opt-tiny")
    save_tokenizer(tmp_path / "opt-tiny", ROWS)
    return tmp_path / "opt-tiny"


def without_embeddings(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not any(part in name for part in OUTSIDE)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def as_bin(folder: Path) -> None:
    """Add weights as facebook's repositories have them: a .bin of the decoder, whose head is the embedding."""
    weights = load_file(folder / "model.safetensors")
    torch.save({name.removeprefix("model."): tensor for name, tensor in weights.items()}, folder / "pytorch_model.bin")


def model_of(name: object, **options: Any) -> Model:
    return Model(str(name), LoadOptions(offline=True, **options))


def test_opt_without_embeddings_and_head_is_refused(opt: Path) -> None:
    as_bin(opt)
    without_embeddings(opt)
    with pytest.raises(ModelError, match=f"no tensor of 60 x 16, .*emobench models convert {opt} OUT"):
        _ = model_of(opt).facts
    out = convert_bin(opt, opt.with_name("out"))
    whole = model_of(out).load().model
    assert torch.equal(whole.lm_head.weight, whole.model.decoder.embed_tokens.weight)
    (opt / "pytorch_model.bin").unlink()
    with pytest.raises(ModelError, match=r"not whole.*Copy the whole model, or save it again"):
        _ = model_of(opt).facts


@pytest.fixture
def published(opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what makes the hub publish the files of a folder as a model; what is downloaded is in the cache, too."""
    cache = tmp_path / "hub"
    snapshot = cache / f"models--{REPO.replace('/', '--')}" / "snapshots" / COMMIT
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    asked: list[str] = []

    def model_info(_: HfApi, repo: str, **given: Any) -> Any:
        assert given["files_metadata"]
        asked.append(repo)
        files = [SimpleNamespace(rfilename=file.name, size=file.stat().st_size) for file in opt.iterdir()]
        return SimpleNamespace(sha=COMMIT, siblings=files)

    def headers(_: HfApi, repo: str, **given: Any) -> Any:
        assert given["revision"] == COMMIT
        weights = load_file(opt / "model.safetensors")
        tensors = {name: SimpleNamespace(shape=list(tensor.shape)) for name, tensor in weights.items()}
        return SimpleNamespace(files_metadata={"model.safetensors": SimpleNamespace(tensors=tensors)})

    def download(repo: str, *, allow_patterns: list[str], **_: Any) -> str:
        for pattern in allow_patterns:
            for file in opt.glob(pattern):
                snapshot.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, snapshot / file.name)
        return str(snapshot)

    def publish() -> None:
        hub.published_weights.cache_clear()
        monkeypatch.setattr(HfApi, "model_info", model_info)
        monkeypatch.setattr(HfApi, "get_safetensors_metadata", headers)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    return publish


NAME = f"{REPO}@{COMMIT}"


def test_a_whole_repository_passes_and_no_weight_is_fetched(published: Callable[..., None], tmp_path: Path) -> None:
    published()
    assert Model(NAME).facts.vocabulary == ROWS
    assert not list((tmp_path / "hub").rglob("*.safetensors"))


def test_a_repository_with_bin_files_alone_is_refused_while_planning(
    published: Callable[..., None], opt: Path, tmp_path: Path
) -> None:
    as_bin(opt)
    (opt / "model.safetensors").unlink()
    published()
    with pytest.raises(ModelError) as refused:
        _ = Model(NAME).facts
    said = str(refused.value)
    assert f"{REPO} (commit {COMMIT}) publishes no model.safetensors" in said
    assert "the weights in it are: pytorch_model.bin." in said
    assert f"hf download {REPO} --revision {COMMIT} --local-dir FOLDER, then emobench models convert FOLDER OUT" in said
    # From its configuration alone it can be made.
    assert Model(NAME, LoadOptions(from_scratch=True)).facts.vocabulary == ROWS


def test_a_repository_whose_safetensors_are_not_whole_is_refused_while_planning(
    published: Callable[..., None], opt: Path
) -> None:
    without_embeddings(opt)
    published()
    with pytest.raises(ModelError, match=r"no tensor of 60 x 16.* emobench models convert"):
        _ = Model(NAME).facts


def test_offline_a_model_without_its_weights_stops_the_plan_and_is_a_download_of_the_dry_run(
    published: Callable[..., None], command: Callable[..., Any], small_data: Path, tmp_path: Path
) -> None:
    published()
    _ = Model(NAME).facts  # it leaves the configuration and the tokenizer in the cache
    with pytest.raises(Missing) as missing:
        model_of(NAME).require_files()
    assert (missing.value.item, missing.value.source) == (f"model {NAME}", REPO)
    assert f"hf download {REPO} --revision {COMMIT}" in missing.value.how
    given = ("--model", NAME, "--objective", "mle", "--data-dir", small_data, "--runs", tmp_path / "runs", "--offline")
    command("train", *given, "--set", "recipe.max_length=32").refused(f"Not on this machine: model {NAME}")
    shown = command("train", *given, "--set", "recipe.max_length=32", "--dry-run", "--json").json
    assert [line["what"] for line in shown["plan"] if line["stage"] == "missing"] == [f"model {NAME} from {REPO}"]


def test_a_hub_that_gives_nothing_is_a_sentence(
    published: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    published()

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
