"""Model names: an alias, a local folder, or a hub id such as `org/name` or `org/name@revision`.

A model that emobench trains itself takes the seed of its pre-training: `tiny-oracle(seed=1)`.
The catalog pins the paper's models to commits, taken from public code and papers; `python tests/benchmarks
evidence.sources` tests the downloads. A branch or a tag is resolved to its current commit, which is recorded. A model
whose packages are installed is read from them, and needs no hub (`packaged.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from emobench.core.errors import Missing, ModelError, UnknownNameError
from emobench.core.reading import expand_home, is_file, is_folder
from emobench.core.settings import parse_call
from emobench.models.hub import MAIN, Repo
from emobench.models.packaged import gguf_folder, how_to_install, packaged_folder

HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")

FILE = re.compile(r"\.[A-Za-z]\w*$")
"""How a file's name ends; a model's may end in a version, such as .3b."""
KINDS = "a folder of transformers, a .gguf file, an alias of `emobench models list`, or OWNER/NAME of the hub"

GPT2_BPE = 4.5
"""Bytes per token of GPT-2's vocabulary, which OPT and GPT-Neo share: WikiText-2's test text has 1.29 MB and 287,644
tokens (transformers' guide to perplexity)."""
LLAMA_BPE = 3.8
"""Bytes per token of LLaMA's 32,000 tokens: about a sixth less than GPT-2's."""
SMOLLM2_BPE, GEMMA_BPE = 4.0, 4.3
"""Bytes per token on WikiText-2's test text, measured with the tokenizers of their GGUF files."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Sizes of a model, which are known before its weights are read."""

    parameters: int
    """Tied weights count once."""
    width: int = 0
    """0, like `layers`, if the configuration does not name it."""
    layers: int = 0
    vocabulary: int = 0
    """Rows of the head, of a featurizer 0."""
    context: int | None = None
    """The longest input in tokens; None if there is no limit."""
    bytes_per_token: float = 4.0
    """Bytes of English text per token, rough."""
    untrainable: str | None = None
    """Why no objective can train it, None if nothing is known against it."""


@dataclass(frozen=True)
class ModelSource:
    """The source of a model: `source` is a folder's path or a hub id, `revision` a hub commit (else None).

    Kind "made" is a model that emobench pre-trains itself. Once it is trained, its folder is a "local" source.
    """

    name: str
    source: str
    revision: str | None
    kind: Literal["local", "hub", "made"]
    seed: int = 0
    """The seed of the pre-training, for kind "made"."""
    adapter: Mapping[str, Any] | None = field(default=None, hash=False)
    """The identity of an adapter with its base, if `source` is the folder of both as one model."""

    def missing(self, files: str) -> Missing:
        """Return the error for files of a hub model that the local cache lacks."""
        return Repo(self.source).missing(self.revision or MAIN, files)


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A row of the catalog."""

    name: str
    source: str
    revision: str | None = None
    """The commit. None: for kind "hub" the current one, which is recorded; kind "made" has none."""
    kind: Literal["hub", "made"] = "hub"
    weights: Literal["safetensors", "bin"] = "safetensors"
    """The format of the weights at this commit, according to public sources. "bin" must be converted."""
    facts: ModelFacts | None = None
    """The facts for estimates before a download, None for a model that the harness makes."""
    bytes_per_weight: int = 2
    """Bytes per weight on the hub. 2 is half precision."""
    note: str = ""

    @property
    def parameters(self) -> int | None:
        return self.facts and self.facts.parameters

    @property
    def hub_bytes(self) -> int | None:
        """Return the approximate size of the download of the weights."""
        return self.parameters and self.parameters * self.bytes_per_weight


_OPT_NOTE = "OPT-175B licence: research only. Published as .bin: convert it once with `emobench models convert`."
_LLAMA_NOTE = "LLaMA licence: research only. A copy by a third party, since Meta put none on the hub."
_LLAMA2_NOTE = "Gated: accept Meta's licence on the hub, then `hf auth login`."
_LICENCE_NOTE = "Gated: accept the licence on the hub, then `hf auth login`."
_FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {"bytes_per_weight": 4, "note": "MIT."},
    "gpt": {"bytes_per_weight": 4, "note": "MIT."},
    "opt": {"weights": "bin", "note": _OPT_NOTE},
    "llama": {"bytes_per_token": LLAMA_BPE, "note": _LLAMA_NOTE},
    "llama2": {"bytes_per_token": LLAMA_BPE, "note": _LLAMA2_NOTE},
    "llama3": {"note": _LICENCE_NOTE},
    "smollm2": {"bytes_per_token": SMOLLM2_BPE, "note": "Apache 2.0."},
    "gemma": {"bytes_per_token": GEMMA_BPE, "note": _LICENCE_NOTE},
    "qwen3": {"note": "Apache 2.0."},
    "olmo2": {"note": "Apache 2.0."},
}
"""What the aliases that begin with a word have in common."""
# Alias, repository, commit ("main": the current one), parameters, and its width, layers, vocabulary and context.
_HUB = """
gpt2         openai-community/gpt2       607a30d783dfa663caf39e06633721c8d4cfcd7e    124_439_808  768 12 50_257 1024
gpt2-large   openai-community/gpt2-large 32b71b12589c2f8d625668d2335a01cac3249519    774_030_080 1280 36 50_257 1024
opt-125m     facebook/opt-125m           27dcfa74d334bc871f3234de431e71c6eeba5dd6    125_239_296  768 12 50_272 2048
opt-1.3b     facebook/opt-1.3b           3f5c25d0bc631cb57ac65913f76e22c2dfb61d62  1_315_758_080 2048 24 50_272 2048
opt-2.7b     facebook/opt-2.7b           905a4b602cda5c501f1b3a2650a4152680238254  2_651_596_800 2560 32 50_272 2048
gpt-neo-1.3b EleutherAI/gpt-neo-1.3B     dbe59a7f4a88d01d1ba9798d78dbe3fe038792c8  1_315_575_808 2048 24 50_257 2048
llama-7b     huggyllama/llama-7b         4782ad278652c7c71b72204d462d6d01eaaf7549  6_738_415_616 4096 32 32_000 2048
llama-13b    huggyllama/llama-13b        bf57045473f207bb1de1ed035ace226f4d9f9bba 13_015_864_320 5120 40 32_000 2048
llama2-7b    meta-llama/Llama-2-7b-hf    01c7f73d771dfac7d292323805ebc428287df4f9  6_738_415_616 4096 32 32_000 4096
llama2-13b   meta-llama/Llama-2-13b-hf   5c31dfb671ce7cfe2d7bb7c04375e44c55e815b1 13_015_864_320 5120 40 32_000 4096
smollm2-135m-instruct HuggingFaceTB/SmolLM2-135M-Instruct main   134_515_008  576 30  49_152   8192
smollm2-135m          HuggingFaceTB/SmolLM2-135M          main   134_515_008  576 30  49_152   8192
smollm2-360m          HuggingFaceTB/SmolLM2-360M          main   361_821_120  960 32  49_152   8192
smollm2-1.7b          HuggingFaceTB/SmolLM2-1.7B          main 1_711_376_384 2048 24  49_152   8192
gemma-3-270m          google/gemma-3-270m                 main   268_098_176  640 18 262_144  32768
gemma-3-1b            google/gemma-3-1b-pt                main   999_885_952 1152 26 262_144  32768
qwen3-0.6b            Qwen/Qwen3-0.6B                     main   596_049_920 1024 28 151_936  40960
qwen3-1.7b            Qwen/Qwen3-1.7B                     main 1_720_574_976 2048 28 151_936  40960
qwen3-4b              Qwen/Qwen3-4B                       main 4_022_468_096 2560 36 151_936  40960
qwen3-8b              Qwen/Qwen3-8B                       main 8_190_735_360 4096 36 151_936  40960
qwen3-0.6b-base       Qwen/Qwen3-0.6B-Base                main   596_049_920 1024 28 151_936  32768
qwen3-1.7b-base       Qwen/Qwen3-1.7B-Base                main 1_720_574_976 2048 28 151_936  32768
qwen3-4b-base         Qwen/Qwen3-4B-Base                  main 4_022_468_096 2560 36 151_936  32768
qwen3-8b-base         Qwen/Qwen3-8B-Base                  main 8_190_735_360 4096 36 151_936  32768
llama3.2-1b           meta-llama/Llama-3.2-1B             main 1_235_814_400 2048 16 128_256 131072
llama3.2-3b           meta-llama/Llama-3.2-3B             main 3_212_749_824 3072 28 128_256 131072
llama3.1-8b           meta-llama/Llama-3.1-8B             main 8_030_261_248 4096 32 128_256 131072
olmo2-1b              allenai/OLMo-2-0425-1B              main 1_484_916_736 2048 16 100_352   4096
olmo2-7b              allenai/OLMo-2-1124-7B              main 7_298_617_344 4096 32 100_352   4096
"""


def _catalog() -> dict[str, Alias]:
    catalog = {}
    for row in _HUB.strip().splitlines():
        name, repo, commit, *sizes = row.split()
        parameters, width, layers, vocabulary, context = map(int, sizes)
        family = {"bytes_per_token": GPT2_BPE, **_FAMILIES[re.split(r"[-.]", name)[0]]}
        facts = ModelFacts(
            parameters=parameters,
            width=width,
            layers=layers,
            vocabulary=vocabulary,
            context=context,
            bytes_per_token=family.pop("bytes_per_token"),
        )
        revision = commit if commit != MAIN else None
        catalog[name] = Alias(name=name, source=repo, revision=revision, facts=facts, **family)
    for name, note in _MADE.items():
        catalog[name] = Alias(name=name, source=name, kind="made", note=note)
    return catalog


_MADE = {
    "tiny-oracle": "A 3-layer GPT-2, pre-trained on the oracle language at first use. No download.",
    "tiny-icl": "Like tiny-oracle, also pre-trained on labelled examples, so that it learns in context. No download.",
    "tiny-lm": "A 4-layer GPT-2 of English, pre-trained at first use on the webtext of --data-dir. No download.",
}
CATALOG = _catalog()


def find_model(name: str, *, offline: bool) -> ModelSource:
    """Return the model for a name: an alias first, then an existing folder, then a hub id.

    `gpt2` is the alias, `./gpt2` a folder. The revision of a hub id is resolved to a commit, by the hub or, offline,
    from the local cache. Raises Missing if the cache does not have it, and UnknownNameError for any other name.
    """
    made = find_made_model(name)
    if made is not None:
        return made
    folder = packaged_folder(name)
    if folder is not None:
        return ModelSource(name, str(folder), None, "local")
    alias = CATALOG.get(name)
    if alias is not None:
        try:
            commit = alias.revision or Repo(alias.source, offline=offline).resolve(MAIN)
        except Missing as missing:
            raise missing.named(missing.item, advice=how_to_install(alias.name)) from None
        except ModelError as error:
            raise ModelError(f"{error} {how_to_install(alias.name)}".strip()) from None
        return ModelSource(name, alias.source, commit, "hub")
    folder = expand_home(name)
    if folder.suffix == ".gguf" and is_file(folder):
        return ModelSource(folder.stem, str(gguf_folder(folder)), None, "local")
    if is_folder(folder):
        folder = folder.resolve()
        return ModelSource(folder.name, str(folder), None, "local")
    hub_id = HUB_ID.fullmatch(name)
    if hub_id is not None and not is_file(folder):
        commit = Repo(hub_id["repo"], offline=offline).resolve(hub_id["revision"] or MAIN)
        return ModelSource(hub_id["repo"], hub_id["repo"], commit, "hub")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or FILE.search(name):
        raise ModelError(f"--model {name}: there is no such file or folder of a model; expected {KINDS}.")
    raise UnknownNameError("model", name, CATALOG, hint=f"Expected {KINDS}.")


def find_made_model(name: str) -> ModelSource | None:
    """Return the model for `tiny-oracle` or `tiny-oracle(seed=1)`. None for names that are not of kind "made".

    Seed 0 is the default and is left out of the name. Raises UserError for other arguments.
    """
    alias = CATALOG.get(name.partition("(")[0].strip())
    if alias is None or (alias.kind != "made" and "(" not in name):
        return None
    _, given = parse_call(name)
    if alias.kind != "made":
        raise ModelError(f"--model {name}: only models that the harness makes have a seed: {', '.join(_MADE)}.")
    seed = given.pop("seed", 0)
    for key in given:
        raise UnknownNameError("setting", key, ["seed"], where=f"--model {alias.name}: ")
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ModelError(f"--model {name}: `seed` is {seed!r}; expected a number from 0 to 2**32 - 1.")
    shown = alias.name
    if seed:
        shown += f"(seed={seed})"
    return ModelSource(shown, alias.source, None, "made", seed)
