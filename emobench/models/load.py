"""Load models from files. All checks run before the weights are read.

Legend: V rows of the head (its vocabulary), D hidden width.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from emobench.core.errors import ModelError, UnknownNameError, first_line
from emobench.models.catalog import ModelFacts, ModelSource
from emobench.models.device import DTYPES, LoadOptions, check_device
from emobench.models.folder import (
    Shapes,
    checked_folder,
    how_to_convert,
    model_folder,
    read_tokenizer,
    stored_shapes,
    tokenizer_folder,
    weight_files,
)
from emobench.models.inference import optimize_for_inference
from emobench.models.quiet import silent_libraries
from emobench.models.suitability import require_generation, why_untrainable

# Vocabularies are padded to round sizes (OPT by 7 rows, Phi by 905). More means a wrong tokenizer.
MOST_PADDING = 1024
POOLER = "pooler"
Use = Literal["lm", "features"]


class LoadedModel(NamedTuple):
    """A transformers model in eval mode, and its tokenizer."""

    model: Any
    tokenizer: Any


def check_model(source: ModelSource, options: LoadOptions) -> ModelFacts:
    """Check a model without reading its weights, and return its facts. Used for planning.

    Raises ModelError if the config, the tokenizer or the weights (unless from scratch) are missing; if the weights are
    not safetensors or have no V x D tensor for the head; if the tokenizer has ids beyond the head's
    rows, or the head has over 1,024 rows more than the tokenizer has ids; if the model fails with a cache. For a hub
    model this downloads only the configuration and the tokenizer, and, unless offline, reads the file list and the
    headers of the weights; offline, raises Missing if configuration or tokenizer were not downloaded before.
    """
    skeleton, size, stored = _examined(AutoModelForCausalLM, source, options)
    name, head, config = source.name, skeleton.get_output_embeddings(), skeleton.config
    if head is None:
        raise ModelError(f"The model {name} ({type(skeleton).__name__}) has no LM head; give a causal model.")
    # transformers also builds an encoder such as BERT as a decoder. XLM says `causal`; other encoders are decoders only
    # if their config.json says so. A configuration may also ask for attention to all tokens.
    is_encoder = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    decodes = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    sees_all = getattr(config.get_text_config(decoder=True), "use_bidirectional_attention", None) in (True, "all")
    if sees_all or (is_encoder and not decodes):
        raise ModelError(
            f"The model {name} ({config.model_type}) is an encoder, whose tokens see those after them; expected a "
            "causal LM, such as gpt2."
        )
    rows = head.weight.shape[0]
    if rows - size > MOST_PADDING:
        raise ModelError(
            f"The head of {name} has {rows} rows, {rows - size} more than its tokenizer has tokens ({size}): "
            f"tokenizer and weights do not belong together (up to {MOST_PADDING} are taken as padding)."
        )
    _check_table(source, "head", head.weight, size, stored)
    with silent_libraries():
        require_generation(name, skeleton)
        untrainable = why_untrainable(skeleton)
    return replace(_facts(skeleton), vocabulary=rows, untrainable=untrainable)


def build_skeleton(source: ModelSource, options: LoadOptions) -> Any:
    """Return the causal model of a configuration on the meta device, without weights."""
    folder = model_folder(source, offline=options.offline, weights=False)
    with silent_libraries():
        return _skeleton(AutoModelForCausalLM, folder, source.name, options.trust_remote_code)


def check_featurizer(source: ModelSource, options: LoadOptions) -> ModelFacts:
    """Check an encoder or a causal LM as a featurizer, and return its facts.

    Raises ModelError if the config, the tokenizer or the safetensors are missing; if the model needs its own code or is
    an encoder-decoder; if the tokenizer has ids beyond the embedding; if the weights have no tensor of the embedding's
    shape. No weights of a hub model are downloaded, as in `check_model`.
    """
    skeleton, size, stored = _examined(AutoModel, source, options)
    if skeleton.config.is_encoder_decoder or not hasattr(skeleton, "get_input_embeddings"):
        raise ModelError(
            f"{source.name} is a {type(skeleton).__name__}; expected an encoder, or a causal LM, of texts."
        )
    _check_table(source, "embedding", skeleton.get_input_embeddings().weight, size, stored)
    return _facts(skeleton)


def load_model(
    source: ModelSource, options: LoadOptions, *, use: Use = "lm", seed: int = 0, frozen: bool = False
) -> LoadedModel:
    """Return the model, in eval mode, and its tokenizer, after the checks of `check_model` or `check_featurizer`.

    From scratch, the weights are initialised with `seed` in float32 and then cast; the global random state does not
    change. `frozen` is for a model that is only read: its weights must not change and get no gradient, and it is faster
    on a CPU (`optimize_for_inference`). A featurizer is the frozen base model, for its hidden states: the checkpoint
    may contain a head or a pooler, which are not used. Raises ModelError also for weights that are missing, unexpected
    or of another shape (a tied head may be absent).
    """
    if options.dtype not in DTYPES:
        raise UnknownNameError("dtype", options.dtype, DTYPES)
    check_device(options.device)
    is_featurizer = use == "features"
    dtype, trusted = getattr(torch, options.dtype), options.trust_remote_code and not is_featurizer
    folder = model_folder(source, offline=options.offline, weights=not options.from_scratch)
    if not options.from_scratch:
        weight_files(folder, source)
    if is_featurizer:
        check_featurizer(source, options)
    else:
        check_model(source, options)
    with silent_libraries():
        tokenizer = read_tokenizer(tokenizer_folder(folder, options), source.name, trusted)
        if options.from_scratch:
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=trusted)
        else:
            loader: Any = AutoModel if is_featurizer else AutoModelForCausalLM
            model = _read(loader, folder, source.name, dtype, trusted)
    model = model.to(device=options.device, dtype=dtype).eval()
    if frozen or is_featurizer:
        optimize_for_inference(model)
    return LoadedModel(model, tokenizer)


def _examined(loader: Any, source: ModelSource, options: LoadOptions) -> tuple[Any, int, Shapes | None]:
    """Return a model on the meta device, its tokenizer's size, and the shapes of its stored weights, if known."""
    name, trusted = source.name, options.trust_remote_code and loader is AutoModelForCausalLM
    folder = checked_folder(source, offline=options.offline, own_tokenizer=options.tokenizer is None)
    stored = None if options.from_scratch else stored_shapes(source, folder, offline=options.offline)
    with silent_libraries():
        skeleton = _skeleton(loader, folder, name, trusted)
        quantisation = getattr(skeleton.config, "quantization_config", None)
        if quantisation and not options.from_scratch:
            # A change of the type would take its codes for weights.
            raise ModelError(
                f"The weights of {name} are quantised ({quantisation}); expected float32, bfloat16 or float16. Give "
                "the original model, or a GGUF file, which is read as floats."
            )
        tokenizer = read_tokenizer(tokenizer_folder(folder, options), name, trusted)
    size = max(tokenizer.get_vocab().values(), default=-1) + 1
    return skeleton, max(len(tokenizer), size), stored


def _facts(skeleton: Any) -> ModelFacts:
    config = skeleton.config.get_text_config(decoder=True)
    context = getattr(config, "max_position_embeddings", None)
    # RoBERTa and MPNet number positions from the padding id plus one.
    table = getattr(getattr(skeleton, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if context is not None and padding is not None:
        context -= padding + 1
    return ModelFacts(
        parameters=sum(parameter.numel() for parameter in skeleton.parameters()),
        width=getattr(config, "hidden_size", 0),
        layers=getattr(config, "num_hidden_layers", 0),
        context=None if context is None or context < 1 else context,  # XLNet says -1: no limit
    )


def _skeleton(loader: Any, folder: Path, name: str, trust_remote_code: bool) -> Any:
    """Return a model on the meta device, without memory for its weights."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
        with torch.device("meta"):
            return loader.from_config(config, trust_remote_code=trust_remote_code)
    except Exception as error:  # a wrong configuration can raise anything
        what = "causal model" if loader is AutoModelForCausalLM else "hidden states"
        raise ModelError(f"The config.json of {name} gives no {what}: {first_line(error)}") from None


def _check_table(source: ModelSource, table: str, weight: Tensor, size: int, stored: Shapes | None) -> None:
    """Raise ModelError unless tokenizer, configuration and stored weights belong together."""
    rows, width = weight.shape
    if size > rows:
        raise ModelError(
            f"The tokenizer of {source.name} has ids up to {size - 1}, but the model's {table} has {rows} rows: "
            "tokenizer and weights do not belong together, or the embeddings were not resized."
        )
    if stored is not None and (rows, width) not in stored.values():
        raise ModelError(
            f"The weights of {source.name} hold no tensor of {rows} x {width}, the {table} that its config.json asks "
            f"for: they are not whole, or of another model. {how_to_convert(source)}"
        )


def _read(loader: Any, folder: Path, name: str, dtype: Any, trust_remote_code: bool) -> Any:
    """Return the model of a folder. Raises ModelError for missing, unexpected or mismatched weights of its parts."""
    try:
        model, report = loader.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            ignore_mismatched_sizes=True,  # they are reported here
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"The weights of {name} could not be read: {first_line(error)}") from None
    parts = dict(model.named_children()).keys() - {POOLER}

    def is_used(key: str) -> bool:
        """Return whether a weight is read; a head or a pooler of a featurizer is not."""
        part = key.removeprefix(f"{model.base_model_prefix}.").partition(".")[0]
        return loader is AutoModelForCausalLM or part in parts

    problems = {
        "lacks": filter(is_used, report["missing_keys"]),
        "has, without a use for it,": filter(is_used, report["unexpected_keys"]),
        "has, in another shape,": (key for key, *_ in report["mismatched_keys"]),
    }
    for verb, names in problems.items():
        keys = sorted(names)
        if keys:
            raise ModelError(
                f"The checkpoint of {name} {verb} {', '.join(keys[:3])}: it does not fit config.json. "
                f"Give the folder of a whole {type(model).__name__}."
            )
    return model
