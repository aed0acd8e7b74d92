"""A name means an alias, a folder or a hub id; revisions become commits, offline those of the local cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoConfig, LlamaConfig, OPTConfig, PreTrainedConfig

from emobench.errors import ModelError, UnknownNameError
from emobench.models.catalog import CATALOG, ModelSource, find_model
from emobench.models.folder import model_folder
from emobench.models.hub import COMMIT as COMMIT_OF

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def downloaded(cache: Path, repo: str, ref: str = "main") -> None:
    refs = cache / f"models--{repo.replace('/', '--')}" / "refs"
    (refs / ref).parent.mkdir(parents=True)
    (refs / ref).write_text(COMMIT + "\n")


def test_the_catalog_holds_the_aliases_and_claims_no_try() -> None:
    assert set(CATALOG) == {
        "gpt2", "gpt2-large", "opt-125m", "opt-1.3b", "opt-2.7b", "llama-7b", "llama-13b", "llama2-7b", "llama2-13b",
        "gpt-neo-1.3b", "tiny-oracle", "tiny-icl", "tiny-lm",
    }  # fmt: skip
    assert [alias.name for alias in CATALOG.values() if alias.tried] == ["tiny-oracle", "tiny-icl", "tiny-lm"]
    commits = {alias.revision for alias in CATALOG.values() if alias.kind == "hub"}
    assert len(commits) == len(CATALOG) - 3
    assert all(COMMIT_OF.fullmatch(commit or "") for commit in commits)


LLAMA_13B = LlamaConfig(hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("gpt2", GPT2Config()),
        ("gpt2-large", GPT2Config(n_embd=1280, n_layer=36, n_head=20)),
        ("opt-125m", OPTConfig()),
        ("opt-1.3b", OPTConfig(hidden_size=2048, num_hidden_layers=24, ffn_dim=8192, num_attention_heads=32)),
        ("opt-2.7b", OPTConfig(hidden_size=2560, num_hidden_layers=32, ffn_dim=10240, num_attention_heads=32)),
        ("llama-7b", LlamaConfig()),
        ("llama-13b", LLAMA_13B),
        ("llama2-7b", LlamaConfig()),
        ("llama2-13b", LLAMA_13B),
        ("gpt-neo-1.3b", GPTNeoConfig()),
    ],
)
def test_parameter_counts_are_those_of_the_architectures(name: str, config: PreTrainedConfig) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert CATALOG[name].parameters == sum(parameter.numel() for parameter in model.parameters())
    layers, context = config.num_hidden_layers, config.max_position_embeddings
    if name.startswith("llama2"):  # the same architecture, trained on twice the length
        context *= 2
    assert CATALOG[name].shape == (config.hidden_size, layers, config.vocab_size, context)
    assert CATALOG[name].hub_bytes == CATALOG[name].parameters * CATALOG[name].bytes_per_weight


def test_an_alias_is_the_catalogs_commit_and_a_hub_id_the_cached_one_offline(cache: Path) -> None:
    pinned = CATALOG["gpt2"].revision
    assert find_model("gpt2", offline=True) == ModelSource("gpt2", "openai-community/gpt2", pinned, "hub")
    downloaded(cache, "some-org/model.x", "refs/pr/2")
    found = find_model("some-org/model.x@refs/pr/2", offline=True)
    assert found == ModelSource("some-org/model.x", "some-org/model.x", COMMIT, "hub")
    other = "f" * 40
    assert find_model(f"some-org/model.x@{other}", offline=True).revision == other


def test_what_was_not_downloaded_is_named_with_the_command(cache: Path) -> None:
    commit = CATALOG["opt-125m"].revision
    with pytest.raises(ModelError, match=rf"`hf download facebook/opt-125m --revision {commit}` where there is a net"):
        model_folder(find_model("opt-125m", offline=True), offline=True)
    with pytest.raises(ModelError, match=r"org/name \(revision main\) is not in .* `hf download org/name` where"):
        find_model("org/name", offline=True)


def test_a_download_of_a_commit_is_found_again_offline(cache: Path) -> None:
    """The hub's own client writes which commit `main` was for a download of `main` alone, and ours are of commits."""
    snapshots = cache / "models--org--name" / "snapshots"
    (snapshots / COMMIT).mkdir(parents=True)
    assert find_model("org/name", offline=True).revision == COMMIT
    (snapshots / ("f" * 40)).mkdir()
    with pytest.raises(ModelError, match=f"several commits of org/name .* give one of org/name@{COMMIT}, org/name@fff"):
        find_model("org/name", offline=True)


def test_a_folder_is_found_by_path_and_an_alias_wins_over_a_folder_of_its_name(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "org/model", "mine"):
        (tmp_path / name).mkdir(parents=True)
    assert find_model("./gpt2", offline=True) == ModelSource("gpt2", str(tmp_path / "gpt2"), None, "local")
    assert find_model("mine", offline=True) == ModelSource("mine", str(tmp_path / "mine"), None, "local")
    assert find_model("org/model", offline=True).kind == "local"
    downloaded(cache, "openai-community/gpt2")
    assert find_model("gpt2", offline=True).kind == "hub"


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no model 'gtp2'; did you mean 'gpt2'.*org/name"):
        find_model("gtp2", offline=True)
    for path in ("./none", "/none/at/all", "../a/b/c"):
        with pytest.raises(ModelError, match="there is no such folder"):
            find_model(path, offline=True)
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelError, match="is a file; expected a GGUF file"):
        find_model(str(file), offline=True)


def test_catalog_and_sources_import_nothing_heavy() -> None:
    code = (
        "import sys, emobench.models.catalog, emobench.data.sources; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'huggingface_hub.hf_api') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
