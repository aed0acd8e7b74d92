"""A corpus sampled from a model: its files, a kill in between, other seeds, models that cannot begin a text."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from emobench.data.texts import load_texts
from emobench.inference.decoding.ancestral import descend, levels_of, row_uniforms
from emobench.models.model import Model

COUNTS = ("--train", "9", "--validation", "3", "--test", "3", "--length", "12")
SPLITS = {"train": 9, "validation": 3, "test": 3}


@pytest.fixture(scope="module")
def sample(command: Callable[..., Any], small_model: Path) -> Any:
    return lambda out, *more, model=small_model: command(
        "sample-corpus", model, "--out", out, *COUNTS, "--offline", "-q", *more
    )


@pytest.fixture(scope="module")
def undisturbed(sample: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    return Path(sample(folder, "--json").ok().json["folder"])


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.jsonl"))}


def test_what_is_written(undisturbed: Path, small_model: Path) -> None:
    facts = json.loads((undisturbed / "stage.json").read_text())
    digest = hashlib.sha256((small_model / "model.safetensors").read_bytes()).hexdigest()
    assert facts["model"]["files"]["model.safetensors"] == f"sha256:{digest}"
    assert (facts["model"]["name"], facts["seed"], facts["length"]) == (small_model.name, 0, 12)
    for split, count in SPLITS.items():
        rows = [json.loads(line) for line in (undisturbed / f"gpt2-oracle.{split}.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == list(range(count))
        assert all(row["ended"] or row["length"] == 12 for row in rows)
        assert all(len(row["text"].split()) <= row["length"] <= 12 for row in rows)
        loaded = load_texts("gpt2-oracle", split, data_dirs=[undisturbed], offline=True)
        assert list(loaded.texts) == [row["text"] for row in rows]


def test_texts_are_ancestral_samples_of_the_seed_the_split_and_their_place(
    undisturbed: Path, small_model: Path
) -> None:
    """One text at a time, by whole forward passes: begins after BOS, ends at EOS or the length, nothing suppressed."""
    model = AutoModelForCausalLM.from_pretrained(small_model).eval()
    tokenizer: Any = Model(str(small_model)).tokenizer
    levels = levels_of(len(tokenizer))
    for split in SPLITS:
        for line in (undisturbed / f"gpt2-oracle.{split}.jsonl").read_text().splitlines():
            row = json.loads(line)
            uniform_SL = torch.from_numpy(np.asarray(row_uniforms(0, f"{split} {row['id']}", 0, 12, levels)))
            ids = [tokenizer.bos_token_id]
            while len(ids) <= 12:
                with torch.no_grad():
                    probs_1V = model(torch.tensor([ids])).logits[:, -1].double().softmax(-1)
                token = int(descend(probs_1V, uniform_SL[None, len(ids) - 1])[0])
                if token == tokenizer.eos_token_id:
                    break
                ids.append(token)
            assert row["text"] == tokenizer.decode(ids[1:])
            assert (row["length"], row["ended"]) == (len(ids) - 1, len(ids) <= 12)


@pytest.mark.parametrize("batch", [1, 7])
def test_after_a_kill_it_ends_in_the_same_bytes(sample: Any, undisturbed: Path, tmp_path: Path, batch: int) -> None:
    """As a kill leaves it: one split whole, the next one with a line half written; with another batch, too."""
    part = tmp_path / "texts" / f"{undisturbed.name}.part"
    part.mkdir(parents=True)
    shutil.copy(undisturbed / "gpt2-oracle.train.jsonl", part)
    lines = (undisturbed / "gpt2-oracle.validation.jsonl").read_bytes().splitlines(keepends=True)
    (part / "gpt2-oracle.validation.jsonl").write_bytes(lines[0] + lines[1][:10])
    for _ in range(2):
        folder = Path(sample(tmp_path, "--batch", batch, "--json").ok().json["folder"])
        assert contents(folder) == contents(undisturbed)
    other = Path(sample(tmp_path, "--seed", 1, "--json").ok().json["folder"])
    assert other.parent == folder.parent
    assert contents(other) != contents(folder)


def test_a_model_without_a_start_token_is_refused_by_name(sample: Any, small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mute"
    shutil.copytree(small_model, folder)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        values = json.loads((folder / name).read_text())
        plain = {key: None if key.startswith(("bos_", "eos_")) else value for key, value in values.items()}
        (folder / name).write_text(json.dumps(plain))
    sample(tmp_path / "out", model=folder).refused("mute has neither a BOS nor an EOS token")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--length", "49"), "reads at most 48 tokens; give --length 48."),
        (("--train", "0"), "--train is 0; expected a number of at least 1."),
        (("--name", "a.b"), "--name is 'a.b'; expected letters, digits, - and _"),
        (("--batch", "0"), "--batch is 0"),
    ],
)
def test_what_cannot_be_asked_for(
    command: Callable[..., Any], small_model: Path, tmp_path: Path, given: tuple[str, str], said: str
) -> None:
    command("sample-corpus", small_model, "--out", tmp_path / "out", "--offline", *given).refused(said)
    assert not (tmp_path / "out").exists()
