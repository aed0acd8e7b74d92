"""`--launch`, and torchrun: several processes train one model, and it is the one that a single process trains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

KEYS = ("loss", "mle", "demd", "grad_norm", "learning_rate", "eval_mle")
DEEPSPEED = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.fixture(scope="module")
def given(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments of a training without dropout; of 17 blocks, an epoch's last batch of 8 holds one.

    The vocabulary has 8,192 rows: so much that DDP has several buckets of gradients.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    texts = [json.loads(line)["text"] for line in (small_data / "wikitext2.train.jsonl").read_text().splitlines()]
    words = ["<unk>", *sorted({word for text in texts for word in text.split()})]
    words += [f"w{place}" for place in range(8192 - len(words))]
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    model = tmp_path_factory.mktemp("launch") / "model"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<unk>").save_pretrained(model)
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    GPT2LMHeadModel(GPT2Config(vocab_size=8192, **sizes, **still)).save_pretrained(model)
    given = ["train", "--objective", "emo", "--model", model, "--data-dir", small_data, "--offline", "--device", "cpu"]
    rules = ("max_length=16", "batch=8", "epochs=2", "learning_rate=1e-4", f"max_tokens={16 * 17}")
    return [*map(str, given), *(word for rule in rules for word in ("--set", f"recipe.{rule}"))]


def started(words: list[str], runs: Path, *more: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "emobench", *words, "--runs", str(runs), *more],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def until(found: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    for _ in range(3000):
        if value := found():
            return value
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def ranks_of(process: int) -> dict[str, int]:
    """Return the worker processes of a command by their rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            variables = (folder / "environ").read_bytes().decode().split("\0")
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found |= {one.removeprefix("RANK="): int(folder.name) for one in variables if one.startswith("RANK=")}
    return found


@pytest.fixture(scope="module")
def trained(command: Callable[..., Any], given: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the training by one process, which is this one."""
    done = command(*given, "--runs", tmp_path_factory.mktemp("one"), "--json").ok()
    return Path(done.json["trained"][0]["model"]).parent


def trained_by(words: list[str], runs: Path, *more: str, launcher: tuple[str, ...] = ()) -> Path:
    """Train, and return the folder of the training."""
    process = started(words, runs, *more, "--json", launcher=launcher)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    return Path(json.loads(out)["trained"][0]["model"]).parent  # one document: one process printed


def assert_same(folder: Path, expected: Path, engine: str) -> None:
    """Compare a training by two processes with that by one."""
    assert folder.name == expected.name  # the same key
    assert len(log_of(folder)) == len(log_of(expected)) >= 6
    for line, wanted in zip(log_of(folder), log_of(expected), strict=True):
        values, needed = ({k: one.get(k, 0.0) for k in KEYS} for one in (line, wanted))
        assert values == pytest.approx(needed, rel=2e-5, abs=1e-5)
        assert line.get("tokens") == wanted.get("tokens")
    assert (folder / "model/config.json").read_bytes() == (expected / "model/config.json").read_bytes()
    weights, wanted_weights = (load_file(f / "model/model.safetensors") for f in (folder, expected))
    assert weights.keys() == wanted_weights.keys()
    assert max(float((weights[n] - w).abs().max()) for n, w in wanted_weights.items()) < 1e-4
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["processes"].startswith(f"2, with {engine}")
    assert not list(folder.parents[1].rglob("*.lock"))


@pytest.mark.parametrize("launch", ["fsdp", *(pytest.param(name, marks=DEEPSPEED) for name in ("zero2", "zero3"))])
def test_the_training_is_that_of_one_process(given: list[str], trained: Path, tmp_path: Path, launch: str) -> None:
    engine = "FSDP2" if launch == "fsdp" else "DeepSpeed"
    assert [line["step"] for line in log_of(trained) if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert_same(trained_by(given, tmp_path, "--launch", launch, "--processes", "2"), trained, engine)


def test_a_run_records_the_entry_of_one_process(command: Callable[..., Any], given: list[str], tmp_path: Path) -> None:
    """The process of rank 0 evaluates and records; the others have ended by then."""
    settings = ("generation.max_length=32", "generation.prefix=4", "generation.continuation=8", "mauve.seeds=[0]")
    words = ["run", *given[1:], "--suite", "lm-quick", "--limit", "8", "--seed", "0"]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--leaderboard", str(tmp_path / "board"), "--json"]
    (one,) = command(*words, "--runs", tmp_path / "one").ok().json["entries"]
    process = started(words, tmp_path / "two", launcher=TORCHRUN)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    (two,) = json.loads(out)["entries"]
    assert [run["key"] for run in one["runs"]] == [run["key"] for run in two["runs"]]
    assert one["metrics"].keys() == two["metrics"].keys()
    folders = [next((tmp_path / place / "train").glob("*/model")).parent for place in ("two", "one")]
    assert_same(*folders, "DDP")
    read = "lm-quick/ppl_test"
    assert two["metrics"][read]["mean"] == pytest.approx(one["metrics"][read]["mean"], rel=1e-5)


@DEEPSPEED
@pytest.mark.parametrize("launch", ["zero2", "zero3"])
def test_deepspeed_trains_adapters_too(given: list[str], tmp_path: Path, launch: str) -> None:
    words = [*given, "--set", "recipe.lora.dropout=0", "--set", "recipe.lora.rank=4"]
    together = trained_by(words, tmp_path / "two", "--launch", launch, "--processes", "2")
    assert_same(together, trained_by(words, tmp_path / "one"), "DeepSpeed")


@DEEPSPEED
def test_deepspeed_keeps_float32_weights_in_half_precision(given: list[str], tmp_path: Path) -> None:
    words = [*given, "--set", "recipe.precision=bfloat16"]
    folders = [trained_by(words, tmp_path / one, "--launch", one, "--processes", "2") for one in ("ddp", "zero3")]
    first, second = (load_file(folder / "model/model.safetensors") for folder in folders)
    assert {str(weight.dtype) for weight in second.values()} == {"torch.float32"}
    assert any((weight != weight.bfloat16().float()).any() for weight in second.values())
    lines, others = (log_of(folder) for folder in folders)
    for line, other in zip(lines, others, strict=True):
        assert line.keys() == other.keys()
        assert {k: line.get(k, 0.0) for k in KEYS} == pytest.approx({k: other.get(k, 0.0) for k in KEYS}, rel=2e-2)
    assert max(float((first[n] - w).abs().max()) for n, w in second.items()) < 5e-3


@DEEPSPEED
def test_a_training_of_deepspeed_goes_on(given: list[str], tmp_path: Path) -> None:
    words = [word.replace("epochs=2", "epochs=100") for word in given]
    launch = ("--launch", "zero3", "--processes", "2")
    process = started(words, tmp_path / "two", *launch)
    until(lambda: list((tmp_path / "two").glob("train/*.part/checkpoints/*/seal.json")), process)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=100)[1]
    assert process.returncode == 130, err
    for other in ((), ("--launch", "zero2", "--processes", "2")):
        err = started(words, tmp_path / "two", *other).communicate(timeout=100)[1]
        assert "was written by DeepSpeed with 2 processes, each with a share of the weights" in err
    folder = trained_by(words, tmp_path / "two", *launch)
    assert_same(folder, trained_by(words, tmp_path / "one"), "DeepSpeed")


def test_a_rank_that_is_killed_ends_all_and_ctrl_c_keeps_a_checkpoint(given: list[str], tmp_path: Path) -> None:
    words = [word.replace("epochs=2", "epochs=4000") for word in given]
    process = started(words, tmp_path, "--launch", "ddp", "--processes", "2")
    until(lambda: list(tmp_path.glob("train/*.part/checkpoints/*/seal.json")), process)
    ranks = ranks_of(process.pid)
    assert ranks.keys() == {"0", "1"}
    os.kill(ranks["1"], signal.SIGKILL)
    err = process.communicate(timeout=100)[1]
    assert process.returncode == 1
    assert "seed 0, its training by 2 processes: the process on cpu:1 ended with signal SIGKILL. It may have run" in err
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks.values())

    # The same command goes on; Ctrl-C stops all processes after their step.
    process = started(words, tmp_path, "--launch", "ddp", "--processes", "2")
    part = next(tmp_path.glob("train/*.part"))
    before = len(log_of(part))
    until(lambda: len(log_of(part)) > before, process)
    ranks = ranks_of(process.pid)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=100)[1]
    assert process.returncode == 130
    assert "going on from the checkpoint of step" in err
    assert err.endswith("Stopped. Run the same command again to go on from the last finished stage or checkpoint.\n")
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks.values())
    last = max(int(path.parent.name.split("-")[1]) for path in part.glob("checkpoints/*/seal.json"))
    assert last == max(line["step"] for line in log_of(part))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--launch", "zero1", "--processes", "2"), "--launch is zero1; expected ddp, fsdp, zero2 or zero3."),
        (("--launch", "ddp"), "--launch ddp trains one model by several processes; give --devices 0,1,2,3"),
        (("--launch", "ddp", "--processes", "3"), "`batch` is 8; expected a multiple of accumulation x processes"),
    ],
)
def test_a_launch_that_is_wrong_is_told_before_any_work(
    command: Callable[..., Any], given: list[str], tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = command(*given, *words, "--runs", tmp_path / "runs")
    assert done.code == 2
    assert sentence in done.err
    assert not (tmp_path / "runs").exists()


def test_commands_that_do_not_train_are_refused_under_torchrun(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = command("evaluate", "--suite", "lm-quick")
    assert done.code == 2
    assert "only `emobench run` and `emobench train` train under it" in done.err
