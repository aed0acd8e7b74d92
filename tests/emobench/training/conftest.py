"""The trainings of these tests: tiny models of several classes, ragged rows with masked labels, and both ways to train.

A fixture gives them to tests (`kit`); a child process reads this file with runpy.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from transformers.utils import logging

from emobench.core.errors import ModelError
from emobench.data.packing import RowCollator
from emobench.models.head import probe_head
from emobench.training.attach import attach, detach
from emobench.training.context import TrainingContext
from emobench.training.recipe import Recipe
from emobench.training.train import ObjectiveTrainer, Training, total_steps, training_arguments
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

logging.disable_progress_bar()

VOCABULARY = 61
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32,
        "bos_token_id": 1, "eos_token_id": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # fmt: skip
LLAMA = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
OPT = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24,
       "max_position_embeddings": 32, "word_embed_proj_dim": 16, "dropout": 0.0, "pad_token_id": 0}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", GPT2),  # tied
    "opt": ("opt", OPT),  # tied
    "llama": ("llama", LLAMA),  # untied
    "phi": ("phi", LLAMA | {"resid_pdrop": 0.0}),  # a head with a bias
    "gemma2": ("gemma2", LLAMA | {"head_dim": 8, "final_logit_softcapping": 2.0, "attn_implementation": "eager"}),
    "granite": ("granite", LLAMA | {"logits_scaling": 4.0}),
}


def tiny(kind: str = "gpt2", *, seed: int = 0, dtype: torch.dtype = torch.float64, **settings: Any) -> Any:
    """Return a model of random weights, larger than at initialisation so that its losses are not all log V."""
    model_type, values = MODELS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(values | settings)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return model.to(dtype).eval()


def ragged(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of 2 to 12 tokens; of each third one the first labels are masked, and row 3 has no target at all."""
    generator = np.random.default_rng(seed)
    rows = []
    for row in range(count):
        ids = generator.integers(3, VOCABULARY, size=generator.integers(2, 13)).astype(np.int32)
        labels = ids.copy()
        if row % 3 == 0:
            labels[: len(ids) // 2 + 1] = -100
        if row == 3:
            labels[:] = -100
        rows.append({"input_ids": ids, "labels": labels, "row": row})
    return rows


def tokenizer(size: int = VOCABULARY) -> Any:
    words = {f"w{i}": i for i in range(size)}
    whole = Tokenizer(WordLevel(words, unk_token="w0"))
    whole.pre_tokenizer = WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="w0", bos_token="w1", eos_token="w2")


def recipe(**values: Any) -> Recipe:
    return Recipe(**{"name": "tiny", "corpus": "none", "epochs": 1, "batch": 8, "learning_rate": 1e-2} | values)


def no_head(name: str) -> torch.Tensor:
    raise ModelError(f"There is no model '{name}'.")


def job(folder: Path, **values: Any) -> Training:
    """Return a training of 24 rows, validated on 10; `values` replace fields, and `recipe` may be a mapping."""
    values["recipe"] = recipe(**values.get("recipe", {}))
    defaults: dict[str, Any] = {
        "model": None, "tokenizer": tokenizer(), "objective": Mle(), "train": ragged(24), "seed": 0, "folder": folder,
        "validation": ragged(10, seed=1), "collate": RowCollator(0), "load_head": no_head, "load_model": no_head,
    }  # fmt: skip
    values = defaults | values
    values["model"] = tiny() if values["model"] is None else values["model"]
    return Training(**values)


def train_sgd(job: Training, *, rate: float = 0.5, steps_only: bool = True) -> list[dict[str, float]]:
    """Train the job's model in place with plain SGD, whose steps are gradients; return the log of its steps."""
    head = probe_head(job.model)
    steps = total_steps(job.recipe, len(job.train))
    job.objective.setup(TrainingContext(head, steps, job.pretrained, job.load_head, job.model, job.load_model))
    attached = attach(job.model, job.objective, head, engine=job.recipe.engine)
    optimizer = torch.optim.SGD(job.model.parameters(), lr=rate)
    log: list[dict[str, float]] = []
    trainer = ObjectiveTrainer(
        model=job.model,
        args=training_arguments(job, job.folder / "checkpoints"),
        train_dataset=job.train,
        eval_dataset=job.validation,
        data_collator=job.collate,
        attached=attached,
        on_step=log.append,
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    detach(job.model, head)
    return [line for line in log if "loss" in line] if steps_only else log


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def saved(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Return the largest difference between two sets of tensors, relative to the largest value."""
    assert a.keys() == b.keys()
    return max(float((a[n] - b[n]).abs().max() / b[n].abs().max().clamp_min(1e-300)) for n in a)


def log_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def in_two_processes(*arguments: object, **environment: str) -> None:
    """Run Python with these arguments in two processes that know of each other (RANK 0 and 1); both must succeed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=os.environ | common | environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        errors = [child.communicate(timeout=480)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], "\n".join(errors)


KIT = SimpleNamespace(
    tiny=tiny, ragged=ragged, tokenizer=tokenizer, recipe=recipe, job=job, train_sgd=train_sgd, weights=weights,
    saved=saved, difference=difference, log_of=log_of, models=tuple(MODELS), objectives={"mle": Mle, "emo": Emo},
    vocabulary=VOCABULARY, in_two_processes=in_two_processes, path=Path(__file__),
)  # fmt: skip


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    return KIT
