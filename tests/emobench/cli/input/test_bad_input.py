"""What the user gave is wrong: a sentence on stderr, exit code 2, and no training has begun."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SMALL = (
    *("--suite", "lm-quick", "--limit", "30", "--offline", "--quiet", "--objective", "mle", "--seed", "0"),
    *("--set", "recipe.max_length=32", "--set", "generation.max_length=32"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "mauve.seeds=[0]"),
)


@pytest.fixture
def run(command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run the small job in a fresh folder, with some of its options replaced."""

    def start(*given: object, without: tuple[str, ...] = (), verb: str = "run", **options: object) -> Any:
        places = {"model": small_model, "data-dir": small_data, "runs": tmp_path / "runs"}
        if verb != "train":
            places["leaderboard"] = tmp_path / "board"
        chosen = {**places, **{name.replace("_", "-"): value for name, value in options.items()}}
        words = [word for name, value in chosen.items() if name not in without for word in (f"--{name}", value)]
        return command(verb, *words, *given)

    return start


def refused(done: Any, *texts: str) -> None:
    assert done.code == 2, (done.code, done.out, done.err)
    assert done.err.startswith("error: "), done.err
    assert done.err.count("\n") == 1, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    for text in texts:
        assert text in done.err, done.err


def nothing_was_made(folder: Path) -> None:
    """Not a stage, not an entry: only checks ran."""
    assert not [path for path in folder.rglob("*") if path.is_file() and {"runs", "board"} & set(path.parts)]


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (["--objective", "emoo"], ["There is no objective 'emoo'; did you mean 'emo'? Known: brier, ", "mle, "]),
        (["--objective", "tailr(gama=1)"], ["objective tailr: There is no setting 'gama'; did you mean 'gamma'?"]),
        (["--objective", "tailr(gamma=2)"], ["objective tailr: ", "`gamma` is 2.0; expected a number of at least 0"]),
        (["--objective", "tailr(2)"], ["'tailr(2)' could not be read", "such as tailr(gamma=0.2)"]),
        (["--objective", "tailr(gamma=__import__('os'))"], ["could not be read"]),
        (["--objective", "mle"], ["--objective mle is given twice"]),
        (["--objective", "./none.py:X"], ["There is no file none.py"]),
        (["--seed", "0"], ["--seed is given as 0, 0; expected each seed once."]),
        (["--seed", "-1"], ["--seed is -1; expected a number from 0 to 2**32 - 1."]),
        (["--seed", "4294967296"], ["--seed is 4294967296; expected a number from 0"]),
        (["--limit", "-3"], ["--limit is -3; expected a number of examples of at least 1."]),
        (["--limit", "0"], ["--limit is 0; expected"]),
        (["--dtype", "float31"], ["--dtype is float31; expected float32, bfloat16 or float16."]),
        (["--device", "gpu"], ["--device gpu is unknown; expected auto, cpu, cuda or cuda:0."]),
        (["--device", "cuda:x"], ["--device cuda:x is unknown"]),
        (["--track", "tensorbord"], ["--track: There is no tracker 'tensorbord'; did you mean 'tensorboard'?"]),
        (["--set", "recipe.epoch=1"], ["There is no setting 'recipe.epoch'; did you mean 'recipe.epochs'?"]),
        (["--set", "recpe.epochs=1"], ["--set: There is no setting 'recpe'; did you mean 'recipe'?"]),
        (["--set", "sampling.top_p=0.9"], ["There is no setting 'sampling'", "Tasks have generation.sampling."]),
        (["--set", "top_p=0.9"], ["There is no setting 'top_p'", "Tasks have generation.sampling.top_p."]),
        (["--set", "recipe.epochs"], ["--set recipe.epochs: expected key=value"]),
        (["--set", "recipe.epochs=0"], ["--set recipe: `epochs` is 0.0; expected a number above 0, at most 100,000."]),
        (["--set", "recipe.epochs=.inf"], ["`epochs` is inf; expected a number above 0, at most 100,000."]),
        (["--set", "recipe.clip=.nan"], ["`clip` is nan; expected at least 0, at most 1,000,000."]),
        (["--set", "recipe.batch=few"], ["--set recipe: `batch` is 'few'; expected a whole number."]),
        (["--set", "recipe.max_length=32"], ["--set recipe.max_length=32: `recipe.max_length` is set twice"]),
        (["--set", "recipe.name=x"], ["the suite names the recipe"]),
        (["--set", "recipe.lora={rnk: 4}"], ["There is no setting 'rnk'; did you mean 'rank'?"]),
        (["--set", "recipe=5"], ["--set recipe=5: `recipe` is set twice; keep one."]),
        (["--set", "generation.samplng.seed=1"], ["There is no setting 'generation.samplng'; did you mean"]),
        (["--set", "generation.sampling.seed=-1"], ["`seed` holds -1; expected a number from 0"]),
        (
            ["--set", "generation.sampling.method=greedy", "--set", "generation.sampling.samples=5"],
            ["`method` is greedy", "`samples` is 5; expected 1: add --set generation.sampling.samples=1."],
        ),
        (
            ["--set", "mauve.featurizer=gpt3"],
            ["error: --set mauve.featurizer=gpt3: There is no model 'gpt3'; did you mean 'gpt2'?"],
        ),
        (
            ["--set", "mauve.featurizer=/no/such"],
            ["error: --set mauve.featurizer=/no/such: there is no such folder."],
        ),
        (
            ["--set", "generation.margin=900"],
            ["error: Task lm-quick, wikitext2.test (local: wikitext2.test.jsonl): None of ", " texts gives a prompt"],
        ),
        (["--set", "oracle.model=/no/such"], ["error: --set oracle.model=/no/such: there is no such folder."]),
        (["--set", "surrogate.limit=5"], ["--set surrogate.*: no task here is of kind 'surrogate'"]),
        (["--set", "objective.gama=0.2"], ["objective mle: There is no setting 'gama'"]),
        (["--set", "protocol=quik"], ["Task lm-quick: There is no protocol 'quik'; did you mean 'quick'?"]),
        (["--set", "protocol=[a]"], ["--set protocol: expected one word, such as --set protocol=paper."]),
        (["--set", "tasks=[lm-quik]"], ["Suite lm-quick: There is no task 'lm-quik'; did you mean 'lm-quick'?"]),
        (["--set", "tasks=[]"], ["--set tasks: expected a list of names"]),
        (["--set", "corpus=wikitxt2"], ["There is no corpus 'wikitxt2'; did you mean 'wikitext2'?"]),
        (
            ["--set", "corpus=other", "--set", "recipe.corpus=x"],
            ["--set corpus and --set recipe.corpus are both given"],
        ),
        (["--set", "corpus=ag_news"], ["ag_news.", ".jsonl", "--data-dir DIR"]),
    ],
    ids=lambda value: " ".join(value[-1:]) if isinstance(value, list) else None,
)
def test_a_slip_in_an_option(run: Callable[..., Any], tmp_path: Path, given: list[str], texts: list[str]) -> None:
    refused(run(*SMALL, *given), *texts)
    nothing_was_made(tmp_path)


def test_names_of_models_suites_and_recipes(run: Callable[..., Any], tmp_path: Path) -> None:
    refused(run(*SMALL, model="gpt3"), "There is no model 'gpt3'; did you mean 'gpt2'?", "local folder, or a hub id")
    refused(run(*SMALL, model="./gpt3"), "--model ./gpt3: there is no such folder")
    refused(run(*SMALL, model="gpt2"), "openai-community/gpt2", "hf download openai-community/gpt2")
    refused(run("--suite", "lm-quik"), "There is no suite 'lm-quik'; did you mean 'lm-quick'?")
    refused(run("--recipe", "lm-fine", verb="train"), "There is no recipe 'lm-fine'; did you mean 'lm-finetune'?")
    refused(run("--suite", "lm-quick", "--offline"), "lm-quick names no objective of its own; add --objective NAME")
    refused(run(*SMALL, without=("model",)), "lm-quick names no model of its own; add --model NAME")
    two = ("--objective", "tailr", "--set", "objective.gamma=0.1")
    refused(run(*SMALL, *two), "--set objective.* needs exactly one --objective")
    nothing_was_made(tmp_path)


def test_settings_that_nothing_reads(run: Callable[..., Any], tmp_path: Path) -> None:
    small = ("--suite", "lm-quick", "--offline", "--quiet", "--set", "generation.max_length=32")
    refused(run(*small, "--set", "recipe.epochs=1", verb="evaluate"), "--set recipe.*: nothing is trained")
    refused(run(*small, "--set", "objective.gamma=1", verb="evaluate"), "'pretrained' is a model as it is")
    nothing_was_made(tmp_path)


def corpus(folder: Path, source: Path, **texts: str) -> Path:
    shutil.copytree(source, folder)
    for split, text in texts.items():
        (folder / f"wikitext2.{split}.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("split", "content", "texts"),
    [
        ("train", "", ["wikitext2.train.jsonl holds no text: expected at least one row"]),
        ("train", '{"text": " "}\n', ["wikitext2.train.jsonl holds no text"]),
        ("train", '{"text": "a"}\nnot json\n', ["wikitext2.train.jsonl:2: expected one JSON object a line"]),
        ("validation", '{"txt": "a"}\n', ['wikitext2.validation.jsonl:1: expected a field "text"']),
        ("test", "[1]\n", ["wikitext2.test.jsonl:1: expected a JSON object"]),
        ("test", '{"text": 3}\n', ['wikitext2.test.jsonl:1: "text" must be a string']),
        ("train", '{"text": "bar bas"}\n', ["No block of 32 tokens fits", "Give more text or a shorter length."]),
        ("validation", '{"text": "bar bas"}\n', ["No block of 32 tokens fits"]),
        ("test", '{"text": "bar bas"}\n', ["None of 1 texts gives a prompt", "need at least 12 tokens"]),
    ],
)
def test_corpora(
    run: Callable[..., Any], small_data: Path, tmp_path: Path, split: str, content: str, texts: list[str]
) -> None:
    data = corpus(tmp_path / "data", small_data, **{split: content})
    refused(run(*SMALL, data_dir=data), *texts)
    nothing_was_made(tmp_path)


def test_data_folders(run: Callable[..., Any], small_data: Path, tmp_path: Path) -> None:
    refused(run(*SMALL, data_dir=tmp_path / "none"), f"--data-dir {tmp_path}/none: there is no such folder.")
    (tmp_path / "empty").mkdir()
    refused(run(*SMALL, data_dir=tmp_path / "empty"), "DIR/wikitext2.test.jsonl and give --data-dir DIR.")
    (tmp_path / "half").mkdir()
    shutil.copy(small_data / "other.train.jsonl", tmp_path / "half" / "mine.train.jsonl")
    refused(
        run(*SMALL, "--set", "corpus=mine", data_dir=tmp_path / "half"),
        "The corpus 'mine' has no test split in the data folders: expected a file DIR/mine.test.jsonl.",
    )
    nothing_was_made(tmp_path)


def changed(source: Path, folder: Path, remove: tuple[str, ...] = (), **config: object) -> Path:
    """Copy a model's folder with files removed and values of its configuration changed."""
    shutil.copytree(source, folder)
    for pattern in remove:
        for path in folder.glob(pattern):
            path.unlink()
    if config and (folder / "config.json").exists():
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **config}))
    return folder


def test_model_folders(run: Callable[..., Any], small_model: Path, tmp_path: Path) -> None:
    def given(name: str, **changes: Any) -> Path:
        return changed(small_model, tmp_path / name, **changes)

    refused(run(*SMALL, model=given("a", remove=("*.safetensors",))), "The model a has no weights in", "--from-scratch")
    refused(run(*SMALL, model=given("b", remove=("tokenizer*",))), "The model b has no tokenizer in")
    refused(run(*SMALL, model=given("c", remove=("config.json",))), "The model c has no config.json in")
    only_bin = given("d", remove=("*.safetensors",))
    (only_bin / "pytorch_model.bin").write_bytes(b"anything")
    refused(run(*SMALL, model=only_bin), "has its weights as .bin", f"emobench models convert {only_bin} OUT")
    refused(
        run(*SMALL, model=given("e", vocab_size=20)),
        "The tokenizer of e has ids up to 41, but the model's head has 20 rows",
    )
    refused(run(*SMALL, model=given("f", vocab_size=5000)), "The head of f has 5000 rows", "tokenizer")
    refused(run(*SMALL, model=given("g", vocab_size=60)), "The weights of g hold no tensor of 60 x 16")
    short = given("h", n_positions=16)
    refused(
        run(*SMALL, model=short), "Recipe lm-finetune trains on 32 tokens, but h reads at most 16; add --set recipe"
    )
    small = tuple(word.replace("recipe.max_length=32", "recipe.max_length=16") for word in SMALL)
    refused(
        run(*small, model=short),
        "for a block of the split's text, but h reads at most 16; add --set generation.max_length=16.",
    )
    broken = given("i")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    refused(run(*SMALL, model=broken), "is no whole safetensors file")
    refused(run(*SMALL, model=small_model / "config.json"), "is a file; expected a folder with config.json")
    nothing_was_made(tmp_path)


def test_a_batch_that_cannot_be_divided_is_refused_before_training(run: Callable[..., Any], tmp_path: Path) -> None:
    refused(run(*SMALL, "--set", "recipe.accumulation=5"), "`batch` is 32; expected a multiple of accumulation")
    nothing_was_made(tmp_path)


def test_the_oracle_suite_takes_its_own_model_and_length(run: Callable[..., Any], tmp_path: Path) -> None:
    oracle = ("--suite", "oracle-language", "--offline", "--quiet")
    shorter = ("--set", "recipe.max_length=32")
    refused(run(*oracle, *shorter), "compares the model with the oracle language", "Use --model tiny-oracle")
    longer = ("--set", "recipe.max_length=128")
    refused(run(*oracle, *longer, model="tiny-oracle"), "trains on 128 tokens, but tiny-oracle reads at most 64")
    refused(run(*oracle, "--set", "oracle.length=128", model="tiny-oracle"), "but tiny-oracle reads at most 64")
    nothing_was_made(tmp_path)


def test_a_device_that_is_not_here(run: Callable[..., Any], tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    refused(run(*SMALL, "--device", "cuda"), "--device cuda: no CUDA device is available", "give --device cpu")
    nothing_was_made(tmp_path)


def test_a_tracker_that_is_not_installed(run: Callable[..., Any], tmp_path: Path) -> None:
    from transformers.integrations.integration_utils import get_available_reporting_integrations

    name = next(n for n in ("neptune", "clearml", "dvclive") if n not in get_available_reporting_integrations())
    refused(run(*SMALL, "--track", name), f"--track {name}: the tracker is not installed; pip install {name}")
    nothing_was_made(tmp_path)


def test_a_word_that_is_no_number_is_refused_by_the_option(run: Callable[..., Any]) -> None:
    done = run(*SMALL, "--seed", "one")
    assert done.code == 2
    assert "Invalid value for '--seed'" in done.err
    assert "Traceback" not in done.err
    misspelt = run(*SMALL, "--objectiv", "emo")
    assert misspelt.code == 2
    assert "No such option: --objectiv" in misspelt.err


@pytest.mark.parametrize("option", ["runs", "leaderboard"])
def test_a_folder_that_cannot_be_written(run: Callable[..., Any], tmp_path: Path, option: str) -> None:
    (tmp_path / "file").write_text("")
    done = run(*SMALL, **{option: tmp_path / "file" / "x"})
    assert done.code == 1
    told = "is a file, where a folder belongs. Move it elsewhere or choose another folder with"
    assert done.err.startswith(f"error: {tmp_path}/file {told} --{option} DIR")
    assert not (tmp_path / "runs" / "train").exists()


NAN = """
import emobench

class Nan(emobench.StatisticsObjective):
    \"\"\"MLE until a token is likely; then no number.\"\"\"
    def loss(self, s):
        return -s.log_prob / (s.log_prob - s.log_prob){more}
"""


@pytest.mark.parametrize(("more", "word"), [("", "infinite"), (" * 0", "NaN")])
def test_a_loss_that_is_no_number_stops_the_run(run: Callable[..., Any], tmp_path: Path, more: str, word: str) -> None:
    (tmp_path / "bad.py").write_text(NAN.format(more=more))
    small = tuple(word for word in SMALL if word not in ("--objective", "mle"))
    done = run(*small, "--objective", f"{tmp_path}/bad.py:Nan", "--json")
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith(f"error: The loss became {word} at step 1, in the micro-batch of training rows [")
    assert "Traceback" not in done.err
    assert not list((tmp_path / "board").rglob("*.json"))
    assert not list((tmp_path / "runs").rglob("stage.json"))


def test_too_few_texts_for_mauve_are_missing_with_a_reason(
    run: Callable[..., Any], command: Any, tmp_path: Path
) -> None:
    small = tuple("15" if word == "30" else word for word in SMALL)
    done = run(*small, "--json")
    assert done.code == 0, done.err
    entry = done.json["entries"][0]
    assert set(entry["missing"]) == {"lm-quick/mauve", "lm-quick/mauve_star"}
    assert "MAUVE was given 15 human texts" in entry["missing"]["lm-quick/mauve"]
    assert not {name for name in entry["metrics"] if "mauve" in name}
    shown = command("leaderboard", "show", "--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs")
    assert shown.code == 0
    assert shown.out.count("MAUVE was given 15 human texts") == 1  # the same reason for both
    assert "lm-quick/mauve, lm-quick/mauve_star (MAUVE was given" in " ".join(shown.out.split())


@pytest.mark.slow
def test_a_disk_that_is_full_while_it_trains(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    """A process that may write files of 20 kB at most: the corpus is read, the first checkpoint does not fit."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    code = f"{limit}; from emobench.cli import main; main()"
    given = ("run", "--model", small_model, "--data-dir", small_data, "--runs", tmp_path / "runs")
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, given), "--leaderboard", str(tmp_path / "board"), *SMALL],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "board").rglob("*.json"))
    assert not list((tmp_path / "runs").rglob("stage.json"))
