"""What the user gave is wrong: a sentence on stderr, exit code 2, and no training has begun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.integrations.integration_utils import get_available_reporting_integrations


def nothing_was_made(folder: Path) -> None:
    """No entry, and no stage but packed corpora: only checks ran."""
    written = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()]
    assert not [parts for parts in written if {"runs", "board"} & set(parts) and "corpus" not in parts]


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (["--objective", "emoo"], ["There is no objective 'emoo'; did you mean 'emo'? Known: asft, brier, ", "mle, "]),
        (["--objective", "tailr(gama=1)"], ["objective tailr: There is no setting 'gama'; did you mean 'gamma'?"]),
        (["--objective", "./none.py:X"], ["There is no file none.py"]),
        (["--objective", "my_loss.txt"], ["'my_loss.txt' names no class of a Python file; expected ./FILE.py:"]),
        (["--objective", "./my_loss.txt"], ["'./my_loss.txt' names no class of a Python file; expected ./FILE.py:"]),
        (["--seed", "0"], ["--seed is given as 0, 0; expected each seed once."]),
        (["--seed", "-1"], ["--seed is -1; expected a number from 0 to 2**32 - 1."]),
        (
            ["--seed", "0,1,2"],
            ["--seed is 0,1,2; expected a whole number. For several seeds repeat the option: --seed 0"],
        ),
        (["--seed", "1.5"], ["--seed is 1.5; expected a whole number."]),
        (
            ["--set", "recipe.epochs", "3"],
            ["`emobench run` does not take the argument 3; write --set KEY=VALUE: --set recipe.epochs=3."],
        ),
        (["emo"], ["`emobench run` does not take the argument emo; write --objective emo."]),
        (["emoo", "mle"], ["`emobench run` does not take the argument emoo mle; see `emobench run --help`."]),
        (["--limit", "0"], ["--limit is 0; expected a number of examples of at least 1."]),
        (["--dtype", "float31"], ["--dtype is float31; expected auto, float32, bfloat16 or float16."]),
        (["--device", "gpu"], ["--device gpu is unknown"]),
        (["--track", "tensorbord"], ["--track: There is no tracker 'tensorbord'; did you mean 'tensorboard'?"]),
        (["--set", "recipe.epoch=1"], ["There is no setting 'recipe.epoch'; did you mean 'recipe.epochs'?"]),
        (["--set", "recpe.epochs=1"], ["--set: There is no setting 'recpe'; did you mean 'recipe'?"]),
        (["--set", "sampling.top_p=0.9"], ["There is no setting 'sampling'"]),
        (["--set", "recipe.epochs=.inf"], ["--set recipe: `epochs` is inf; expected a number above 0"]),
        (["--set", "recipe.liger=true"], ["needs a CUDA device, and --device is cpu; drop it."]),
        (["--set", "recipe.accumulation=5"], ["`batch` is 32; expected a multiple of accumulation"]),
        (["--set", "recipe.max_length=32"], ["--set recipe.max_length=32: `recipe.max_length` is set twice"]),
        (["--set", "generation.sampling.seed=-1"], ["`seed` holds -1; expected a number from 0"]),
        (
            ["--set", "generation.sampling.method=greedy", "--set", "generation.sampling.samples=5"],
            ["`method` is greedy", "`samples` is 5; expected 1: add --set generation.sampling.samples=1."],
        ),
        (
            ["--set", "mauve.featurizer=gpt3"],
            ["error: --set mauve.featurizer=gpt3: There is no model 'gpt3'; did you mean 'gpt2'?"],
        ),
        (["--set", "mauve.featurizer=/no/such"], ["error: --set mauve.featurizer=/no/such: there is no such file or"]),
        (
            ["--set", "generation.margin=900"],
            ["error: Task lm-quick, wikitext2.test (local: wikitext2.test.jsonl): None of ", " texts gives a prompt"],
        ),
        (["--set", "protocol=quik"], ["Task lm-quick: There is no protocol 'quik'; did you mean 'quick'?"]),
        (["--set", "protocol=[a]"], ["--set protocol: expected one word, such as --set protocol=paper."]),
        (["--set", "tasks=[lm-quik]"], ["Suite lm-quick v1: There is no task 'lm-quik'; did you mean 'lm-quick'?"]),
        (["--set", "corpus=wikitxt2"], ["There is no corpus 'wikitxt2'; did you mean 'wikitext2'?"]),
        (
            ["--set", "corpus=other", "--set", "recipe.corpus=x"],
            ["--set corpus and --set recipe.corpus are both given"],
        ),
        (["--set", "corpus=ag_news"], ["ag_news.", ".jsonl", "--data-dir DIR"]),
    ],
    ids=lambda value: " ".join(value[-1:]) if isinstance(value, list) else None,
)
def test_a_slip_in_an_option(job: Callable[..., Any], tmp_path: Path, given: list[str], texts: list[str]) -> None:
    job(*given).refused(*texts)
    nothing_was_made(tmp_path)


def test_names_of_models_suites_and_recipes(job: Callable[..., Any], tmp_path: Path) -> None:
    job(model="gpt3").refused("There is no model 'gpt3'; did you mean 'gpt2'?", "OWNER/NAME of the hub")
    job(model="./gpt3").refused("--model ./gpt3: there is no such file or folder")
    job(model="gpt2").refused("openai-community/gpt2", "hf download openai-community/gpt2")
    job(suite="lm-quik").refused("There is no suite 'lm-quik'; did you mean 'lm-quick'?")
    train = {"verb": "train", "suite": None, "limit": None, "leaderboard": None, "sizes": ()}
    job(recipe="lm-fine", **train).refused("There is no recipe 'lm-fine'; did you mean 'lm-finetune'?")
    job(objective=None).refused("lm-quick names no objective of its own; add --objective NAME")
    job(model=None).refused("lm-quick names no model; add --model NAME")
    two = ("--objective", "tailr", "--set", "objective.gamma=0.1")
    job(*two).refused("--set objective.* needs exactly one --objective")
    nothing_was_made(tmp_path)


def test_settings_that_nothing_reads(job: Callable[..., Any], tmp_path: Path) -> None:
    untrained = {"verb": "evaluate", "objective": None, "seed": None, "sizes": ("--set", "generation.max_length=32")}
    job("--set", "recipe.epochs=1", **untrained).refused("--set recipe: ")
    job("--set", "objective.gamma=1", **untrained).refused(
        "--set objective.* needs exactly one --objective that is trained"
    )
    nothing_was_made(tmp_path)


@pytest.mark.parametrize(
    ("split", "content", "texts"),
    [
        ("train", "", ["wikitext2.train.jsonl) has no text"]),
        ("train", '{"text": "a"}\nnot json\n', ["wikitext2.train.jsonl:2: expected one JSON object a line"]),
        ("train", '{"text": "bar bas"}\n', ["No block of 32 tokens fits", "Give more text or a shorter length."]),
        ("validation", '{"text": "bar bas"}\n', ["No block of 32 tokens fits"]),
        ("test", '{"text": "bar bas"}\n', ["None of 1 texts gives a prompt", "need at least 12 tokens"]),
    ],
)
def test_corpora(
    job: Callable[..., Any], small_data: Path, tmp_path: Path, split: str, content: str, texts: list[str]
) -> None:
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / f"wikitext2.{split}.jsonl").write_text(content)
    job(data_dir=data).refused(*texts)
    nothing_was_made(tmp_path)


def test_data_folders(job: Callable[..., Any], small_data: Path, tmp_path: Path) -> None:
    job(data_dir=tmp_path / "none").refused(f"--data-dir {tmp_path}/none: there is no such folder.")
    (tmp_path / "empty").mkdir()
    job(data_dir=tmp_path / "empty").refused("DIR/wikitext2.test.jsonl and give --data-dir DIR.")
    (tmp_path / "half").mkdir()
    shutil.copy(small_data / "other.train.jsonl", tmp_path / "half" / "mine.train.jsonl")
    said = "The corpus 'mine' has no test split in the data folders: expected a file DIR/mine.test.jsonl."
    job("--set", "corpus=mine", data_dir=tmp_path / "half").refused(said)
    nothing_was_made(tmp_path)


def test_model_folders(job: Callable[..., Any], sizes: tuple[str, ...], small_model: Path, tmp_path: Path) -> None:
    bare, short = (shutil.copytree(small_model, tmp_path / name) for name in ("bare", "short"))
    (bare / "model.safetensors").unlink()
    job(model=bare).refused("The model bare has no weights in", "--from-scratch")
    config = short / "config.json"
    config.write_text(config.read_text().replace('"n_positions": 48', '"n_positions": 16'))
    job(model=short).refused("Recipe lm-finetune trains on 32 tokens, but short reads at most 16; add --set recipe")
    shorter = tuple(word.replace("recipe.max_length=32", "recipe.max_length=16") for word in sizes)
    job(model=short, sizes=shorter).refused("short reads at most 16", "generation.max_length=16")
    nothing_was_made(tmp_path)


def test_the_oracle_suite_takes_its_own_model_and_length(
    job: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    for model, setting, said in (
        (small_model, "recipe.max_length=32", "Use --model tiny-oracle"),
        ("tiny-oracle", "recipe.max_length=128", "tiny-oracle reads at most 64"),
        ("tiny-oracle", "oracle.length=128", "tiny-oracle reads at most 64"),
    ):
        oracle = {"suite": "oracle-language", "objective": None, "seed": None, "limit": None}
        job(model=model, sizes=("--set", setting), **oracle).refused(said)
    nothing_was_made(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_device_that_is_not_here(job: Callable[..., Any], tmp_path: Path) -> None:
    job("--device", "cuda").refused("--device cuda is unknown or not available")
    nothing_was_made(tmp_path)


def test_a_tracker_that_is_not_installed(job: Callable[..., Any], tmp_path: Path) -> None:
    name = next(n for n in ("neptune", "clearml", "dvclive") if n not in get_available_reporting_integrations())
    job("--track", name).refused(f"--track {name} cannot be started", f"pip install {name}")
    nothing_was_made(tmp_path)


def test_what_the_parser_of_options_refuses(job: Callable[..., Any]) -> None:
    done = job("--objectiv", "emo")
    assert done.code == 2
    assert "No such option" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("option", ["runs", "leaderboard"])
def test_a_folder_that_cannot_be_written(job: Callable[..., Any], tmp_path: Path, option: str) -> None:
    (tmp_path / "file").write_text("")
    done = job(**{option: tmp_path / "file" / "x"})
    assert done.code == 1
    assert done.err.startswith(f"error: {tmp_path}/file")
    assert f"--{option} DIR" in done.err
    assert not (tmp_path / "runs" / "train").exists()


NAN = """
import emobench

class Nan(emobench.StatisticsObjective):
    \"\"\"MLE until a token is likely; then no number.\"\"\"
    def loss(self, s):
        return -s.log_prob / (s.log_prob - s.log_prob){more}
"""


@pytest.mark.parametrize(("more", "word"), [("", "infinite"), (" * 0", "NaN")])
def test_a_loss_that_is_no_number_stops_the_run(job: Callable[..., Any], tmp_path: Path, more: str, word: str) -> None:
    (tmp_path / "bad.py").write_text(NAN.format(more=more))
    done = job("--json", objective=f"{tmp_path}/bad.py:Nan")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: The loss became {word} at step 1, in the micro-batch of training rows [")
    assert "Traceback" not in done.err
    assert not list((tmp_path / "board").rglob("*.json"))
    assert not list((tmp_path / "runs/train").rglob("stage.json"))


def test_too_few_texts_for_mauve_are_missing_with_a_reason(
    job: Callable[..., Any], command: Any, tmp_path: Path
) -> None:
    entry = job("--json", limit=15).ok().json["entries"][0]
    assert set(entry["missing"]) == {"lm-quick/mauve", "lm-quick/mauve_star"}
    assert "MAUVE was given 15 human texts" in entry["missing"]["lm-quick/mauve"]
    assert not {name for name in entry["metrics"] if "mauve" in name}
    shown = command("leaderboard", "show", "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs").ok()
    assert shown.out.count("MAUVE was given 15 human texts") == 1  # the same reason for both
    assert "lm-quick/mauve, lm-quick/mauve_star (MAUVE was given" in " ".join(shown.out.split())


@pytest.mark.slow
def test_a_disk_that_is_full_while_it_trains(
    small_model: Path, small_data: Path, sizes: tuple[str, ...], tmp_path: Path
) -> None:
    """A process that may write files of 20 kB at most: the corpus is read, the first checkpoint does not fit."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    code = f"{limit}; from emobench.cli import main; main()"
    given = ("run", "--model", small_model, "--data-dir", small_data, "--runs", tmp_path / "runs", *sizes)
    given += ("--suite", "lm-quick", "--objective", "mle", "--limit", 30, "--leaderboard", tmp_path / "board")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, given), "--seed", "0", "--offline", "--quiet"],
        # Python would keep the bytecode of what it imports, cut at 20 kB.
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "board").rglob("*.json"))
    assert not list((tmp_path / "runs/train").rglob("stage.json"))
