"""A corpus sampled from a model: its files, a kill in between, other settings, models that cannot begin a text."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from emobench.core.locks import locked
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
    done = sample(folder, "--json")
    assert done.code == 0, done.err
    assert done.json == json.loads((folder / "gpt2-oracle.json").read_text())
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_what_is_written(undisturbed: Path, small_model: Path) -> None:
    facts = json.loads((undisturbed / "gpt2-oracle.json").read_text())
    assert set(contents(undisturbed)) == {"gpt2-oracle.json", *(f"gpt2-oracle.{split}.jsonl" for split in SPLITS)}
    digest = hashlib.sha256((small_model / "model.safetensors").read_bytes()).hexdigest()
    assert facts["model"]["files"]["model.safetensors"] == f"sha256:{digest}"
    assert (facts["model"]["name"], facts["seed"], facts["length"]) == (small_model.name, 0, 12)
    for split, count in SPLITS.items():
        rows = [json.loads(line) for line in (undisturbed / f"gpt2-oracle.{split}.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == list(range(count))
        assert all(row["ended"] or row["length"] == 12 for row in rows)
        assert all(len(row["text"].split()) <= row["length"] <= 12 for row in rows)
        found = facts["splits"][split]
        assert found["texts"] == count
        assert found["tokens"] == sum(row["length"] for row in rows)
        assert found["ended"] == sum(row["ended"] for row in rows)
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
    for name in ("gpt2-oracle.json", "gpt2-oracle.train.jsonl"):
        shutil.copy(undisturbed / name, tmp_path / name)
    facts = json.loads((tmp_path / "gpt2-oracle.json").read_text())
    facts["splits"] = {"train": facts["splits"]["train"]}
    (tmp_path / "gpt2-oracle.json").write_text(json.dumps(facts))
    lines = (undisturbed / "gpt2-oracle.validation.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "gpt2-oracle.validation.part").write_bytes(lines[0] + lines[1][:10])
    before = (tmp_path / "gpt2-oracle.train.jsonl").stat().st_mtime_ns
    done = sample(tmp_path, "--batch", batch)
    assert done.code == 0, done.err
    assert contents(tmp_path) == contents(undisturbed)
    assert (tmp_path / "gpt2-oracle.train.jsonl").stat().st_mtime_ns == before
    assert sample(tmp_path, "--batch", batch).code == 0
    assert contents(tmp_path) == contents(undisturbed)


@pytest.mark.parametrize("content", ["", "{", "[]", "5", '{"splits": []}', "[" * 5000, "\xff", "folder", "loop"])
def test_facts_that_cannot_be_read_are_named(sample: Any, undisturbed: Path, tmp_path: Path, content: str) -> None:
    folder = shutil.copytree(undisturbed, tmp_path / "corpus")
    facts = folder / "gpt2-oracle.json"
    facts.unlink()
    if content == "folder":
        facts.mkdir()
    elif content == "loop":
        facts.symlink_to(facts)
    else:
        facts.write_text(content, encoding="latin-1")
    sample(folder).refused(f"error: {facts} ", f"Restore it, or move all files {folder}/gpt2-oracle.* elsewhere")


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_altered_split_is_refused_and_stays_so(sample: Any, undisturbed: Path, tmp_path: Path, split: str) -> None:
    """Its digest was taken anew at each call, so that the second one found nothing wrong."""
    folder = shutil.copytree(undisturbed, tmp_path / "corpus")
    file = folder / f"gpt2-oracle.{split}.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([json.dumps({**json.loads(lines[0]), "text": "mine"}) + "\n", *lines[1:]]))
    before = contents(folder)
    for _ in range(2):
        sample(folder).refused(f"error: {file} was altered since it was sampled")
        assert contents(folder) == before
    file.unlink()
    assert sample(folder).code == 0
    assert contents(folder) == contents(undisturbed)


def test_files_that_are_not_its_own_are_refused(sample: Any, undisturbed: Path, tmp_path: Path) -> None:
    """A split that somebody else put there, before others are sampled; and altered rows of an interrupted one."""
    facts = json.loads((undisturbed / "gpt2-oracle.json").read_text())
    (tmp_path / "gpt2-oracle.json").write_text(json.dumps({**facts, "splits": {}}))
    test, part = tmp_path / "gpt2-oracle.test.jsonl", tmp_path / "gpt2-oracle.train.part"
    shutil.copy(undisturbed / test.name, test)
    sample(tmp_path).refused(f"{test} was altered")
    test.unlink()
    test.mkdir()
    sample(tmp_path).refused(f"{test} cannot be read")
    test.rmdir()
    assert sorted(contents(tmp_path)) == ["gpt2-oracle.json"]
    lines = (undisturbed / "gpt2-oracle.train.jsonl").read_bytes().splitlines(keepends=True)
    for rows in ([lines[1], lines[0]], [*lines, lines[0]], [b"5\n"]):
        part.write_bytes(b"".join(rows))
        sample(tmp_path).refused(f"{part} was altered")
        assert not (tmp_path / "gpt2-oracle.train.jsonl").exists()


def test_a_second_process_waits_for_the_first(sample: Any, undisturbed: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(undisturbed, tmp_path / "corpus")
    with ThreadPoolExecutor(1) as pool:
        with locked(folder / "gpt2-oracle.lock"):
            second = pool.submit(sample, folder)
            with pytest.raises(TimeoutError):
                second.result(timeout=2)
        assert second.result(timeout=60).code == 0
    assert contents(folder) == contents(undisturbed)


def test_a_folder_of_other_settings_is_refused(sample: Any, undisturbed: Path, tmp_path: Path) -> None:
    before = contents(undisturbed)
    sample(undisturbed, "--seed", "1").refused("was made with other settings: seed 0 there, 1 here")
    assert contents(undisturbed) == before
    (tmp_path / "gpt2-oracle.test.jsonl").write_text('{"text": "mine"}\n')
    sample(tmp_path).refused("is there, and not by this command. Give another --out or --name")


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
