"""A name means an alias, a folder or a hub id; revisions become commits, offline those of the local cache."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoConfig,
    LlamaConfig,
    Olmo2Config,
    OPTConfig,
    PreTrainedConfig,
    Qwen3Config,
)

from emobench.core.errors import Missing, ModelError, UnknownNameError
from emobench.models.catalog import CATALOG, ModelSource, find_model
from emobench.models.folder import model_folder
from emobench.models.hub import COMMIT as COMMIT_OF
from emobench.models.hub import Repo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def downloaded(cache: Path, repo: str, ref: str = "main") -> None:
    refs = cache / f"models--{repo.replace('/', '--')}" / "refs"
    (refs / ref).parent.mkdir(parents=True)
    (refs / ref).write_text(COMMIT + "\n")


PAPER = {
    "gpt2", "gpt2-large", "opt-125m", "opt-1.3b", "opt-2.7b", "llama-7b", "llama-13b", "llama2-7b", "llama2-13b",
    "gpt-neo-1.3b",
}  # fmt: skip


def test_the_papers_models_are_pinned() -> None:
    commits = {CATALOG[name].revision for name in PAPER}
    assert len(commits) == len(PAPER)
    assert all(COMMIT_OF.fullmatch(commit or "") for commit in commits)
    others = [alias for alias in CATALOG.values() if alias.kind == "hub" and alias.name not in PAPER]
    assert not any(alias.revision for alias in others)


def config(cls: Any, width: int, layers: int, heads: tuple[int, int], inner: int, **others: Any) -> Any:
    return cls(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        intermediate_size=inner,
        **others,
    )


SMOL: dict[str, Any] = {"vocab_size": 49_152, "tie_word_embeddings": True, "max_position_embeddings": 8192}
LLAMA3: dict[str, Any] = {"vocab_size": 128_256, "max_position_embeddings": 131_072}
TIED: dict[str, Any] = {**LLAMA3, "tie_word_embeddings": True}
QWEN: dict[str, Any] = {"max_position_embeddings": 40_960, "tie_word_embeddings": True}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False}
GEMMA: dict[str, Any] = {"vocab_size": 262_144, "max_position_embeddings": 32_768}
OLMO: dict[str, Any] = {"vocab_size": 100_352, "max_position_embeddings": 4096}
LLAMA_13B = config(LlamaConfig, 5120, 40, (40, 40), 13824)


@pytest.mark.parametrize(
    ("name", "made"),
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
        ("smollm2-135m-instruct", config(LlamaConfig, 576, 30, (9, 3), 1536, **SMOL)),
        ("smollm2-135m", config(LlamaConfig, 576, 30, (9, 3), 1536, **SMOL)),
        ("smollm2-360m", config(LlamaConfig, 960, 32, (15, 5), 2560, **SMOL)),
        ("smollm2-1.7b", config(LlamaConfig, 2048, 24, (32, 32), 8192, **SMOL)),
        ("llama3.2-1b", config(LlamaConfig, 2048, 16, (32, 8), 8192, **TIED)),
        ("llama3.2-3b", config(LlamaConfig, 3072, 28, (24, 8), 8192, **TIED)),
        ("llama3.1-8b", config(LlamaConfig, 4096, 32, (32, 8), 14_336, **LLAMA3)),
        ("qwen3-0.6b", config(Qwen3Config, 1024, 28, (16, 8), 3072, **QWEN)),
        ("qwen3-1.7b", config(Qwen3Config, 2048, 28, (16, 8), 6144, **QWEN)),
        ("qwen3-4b", config(Qwen3Config, 2560, 36, (32, 8), 9728, **QWEN)),
        ("qwen3-8b", config(Qwen3Config, 4096, 36, (32, 8), 12_288, **QWEN | UNTIED)),
        ("qwen3-8b-base", config(Qwen3Config, 4096, 36, (32, 8), 12_288, **UNTIED)),
        ("gemma-3-270m", config(Gemma3TextConfig, 640, 18, (4, 1), 2048, **GEMMA)),
        ("gemma-3-1b", config(Gemma3TextConfig, 1152, 26, (4, 1), 6912, **GEMMA)),
        ("olmo2-1b", config(Olmo2Config, 2048, 16, (16, 16), 8192, **OLMO)),
        ("olmo2-7b", config(Olmo2Config, 4096, 32, (32, 32), 11_008, **OLMO)),
    ],
)
def test_parameter_counts_are_those_of_the_architectures(name: str, made: PreTrainedConfig) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made)
    assert CATALOG[name].parameters == sum(parameter.numel() for parameter in model.parameters())
    layers, context = made.num_hidden_layers, made.max_position_embeddings
    if name.startswith("llama2"):  # the same architecture, trained on twice the length
        context *= 2
    facts = CATALOG[name].facts
    assert facts is not None
    sizes = (made.hidden_size, layers, made.vocab_size, context)
    assert (facts.width, facts.layers, facts.vocabulary, facts.context) == sizes


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
    with pytest.raises(Missing, match=rf"`hf download facebook/opt-125m --revision {commit}` where there is a net"):
        model_folder(find_model("opt-125m", offline=True), offline=True)
    with pytest.raises(Missing, match=r"org/name \(revision main\)\. .* `hf download org/name` where"):
        find_model("org/name", offline=True)


def test_another_commit_never_stands_for_a_revision_that_is_not_here(cache: Path) -> None:
    downloaded(cache, "org/name", "v1")
    assert find_model("org/name@v1", offline=True).revision == COMMIT
    for asked, revision in (("org/name@v2", "v2"), ("org/name", "main")):
        with pytest.raises(Missing) as missing:
            find_model(asked, offline=True)
        assert missing.value.item == f"org/name (revision {revision})"


def test_the_cache_is_told_the_branch_of_a_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client writes a ref where it is asked for a branch; we ask for the commit that the branch was."""
    answer = types.SimpleNamespace(sha=COMMIT)
    monkeypatch.setattr("huggingface_hub.HfApi.repo_info", lambda *_, **__: answer)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(cache))
    assert Repo("org/name").resolve("v1") == COMMIT
    with pytest.raises(Missing, match=r"\(revision v1\)"):
        Repo("org/name", offline=True).resolve("v1")
    Repo("org/name").fetch(COMMIT, ["*"])
    assert Repo("org/name", offline=True).resolve("v1") == COMMIT


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
    with pytest.raises(UnknownNameError, match=r"no model 'gtp2'; did you mean 'gpt2'.*OWNER/NAME"):
        find_model("gtp2", offline=True)
    for path in ("./none", "/none/at/all", "../a/b/c", "model.bin", "tiny.gguf"):
        with pytest.raises(ModelError, match=r"no such file or folder of a model; .*a \.gguf file"):
            find_model(path, offline=True)
    with pytest.raises(UnknownNameError, match=r"did you mean 'opt-1\.3b'"):
        find_model("opt-1.3c", offline=True)
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(ModelError, match=r"no such file or folder of a model"):
        find_model(str(file), offline=True)


def test_catalog_and_sources_import_nothing_heavy() -> None:
    code = (
        "import sys, emobench.models.catalog, emobench.data.sources, emobench.data.oracle.language; "
        "print([m for m in ('torch', 'transformers', 'datasets', 'huggingface_hub.hf_api') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
