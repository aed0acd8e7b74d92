"""Load tokenizers from files, without importing the code of models: a plan needs no more."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from emobench.core.errors import ModelError, first_line
from emobench.models.catalog import ModelSource
from emobench.models.folder import model_folder, require_config_and_tokenizer
from emobench.models.quiet import silent_libraries


def load_tokenizer(source: ModelSource, *, offline: bool = False, trust_remote_code: bool = False) -> Any:
    """Return only the tokenizer of a model. Raises ModelError if it is missing or cannot be read."""
    folder = model_folder(source, offline=offline, weights=False)
    require_config_and_tokenizer(folder, source.name)
    with silent_libraries():
        return read_tokenizer(folder, source.name, trust_remote_code)


def tokenizer_digest(tokenizer: Any) -> str | None:
    """Return the sha256 of all that decides the tokens of a text; None for a tokenizer in Python, which has code."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    called = {"truncation", "padding"}  # what the last call asked for
    decides = {name: value for name, value in definition.items() if name not in called}
    facts = [type(tokenizer).__name__, tokenizer.bos_token_id, tokenizer.eos_token_id, decides]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_tokenizer(folder: Path, name: str, trust_remote_code: bool) -> Any:
    """Return the tokenizer of a folder; `name` is the model's. Raises ModelError if it cannot be read."""
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # `tokenizers` raises bare Exceptions for files that it cannot read
        raise ModelError(f"The tokenizer of {name} could not be read: {first_line(error)}") from None
