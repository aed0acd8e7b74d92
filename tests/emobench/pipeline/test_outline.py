"""A dry run asks no hub, knows the size of what is not here, and counts what is."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from emobench.config import parse_overrides
from emobench.data.sources import CORPORA
from emobench.errors import ConfigError, UnknownNameError, UserError
from emobench.pipeline.outline import DONE, TO_DO, Outline, StageLine
from emobench.pipeline.outliner import make_outline
from emobench.pipeline.request import Request

N = 6_738_415_616
TASKS = ("tweet_emotion", "sst2", "trec", "subj", "cr", "rotten_tomatoes", "ag_news", "mmlu")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, and no way out: the hub's own switch for offline work stays off."""

    def refuse(*_: object) -> None:
        raise AssertionError("a dry run opened a connection")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def outline(*settings: str, **given: Any) -> Outline:
    chosen: dict[str, Any] = {"suite": "nlu", "objectives": ("emo",), "model": "llama-7b", **given}
    return make_outline(Request(settings=parse_overrides(settings), **chosen))


def of(found: Outline, stage: str) -> list[StageLine]:
    return [line for line in found.lines if line.stage == stage]


def test_the_signature_command_is_planned_from_names_alone() -> None:
    found = outline()
    assert {line.state for line in found.lines} == {TO_DO}
    (training,) = of(found, "train")
    rows = CORPORA["wikitext103"].splits["train"].text_bytes / 3.8 // 256  # type: ignore[operator]
    assert training.tokens == rows * 255
    assert training.steps == -(-rows // 16)
    # LoRA: 4 N T, at 40 % of the dense peak of float16.
    assert training.seconds == pytest.approx(4 * N * training.tokens / (0.4 * 989e12))
    assert training.memory_bytes is not None
    assert 4 * N < training.memory_bytes < 80e9
    assert [line.what.split(", ")[2].split(" ")[0] for line in of(found, "evaluate")] == list(TASKS)
    for line in of(found, "evaluate"):
        assert line.seconds == pytest.approx(2 * N * line.tokens / (0.4 * 67e12))  # type: ignore[operator]
    downloads = {line.what: line.download_bytes for line in of(found, "download")}
    assert downloads["model llama-7b from huggyllama/llama-7b"] == 2 * N
    encoder = downloads["sentence encoder all-mpnet-base-v2 from sentence-transformers/all-mpnet-base-v2"]
    assert encoder == pytest.approx(0.438e9, rel=1e-3)
    assert {f"data set {task}" for task in TASKS} <= {what.split(" from ")[0] for what in downloads}
    assert found.totals().download_bytes == sum(size or 0 for size in downloads.values())
    assert found.totals().tokens["train"] == training.tokens
    assert "add --device cuda" in "\n".join(found.notes())


def test_estimates_are_near_what_was_measured() -> None:
    """Tokens of a prompt with 8 retrieved shots, measured with a BPE of English: TREC 177 and 6 labels of 3 tokens, AG
    News 624 and 4 of 2.5, SST-2 313 and 2 of 2. A LLaMA's are about as many."""
    lines = {line.what.split(", ")[2].split(" ")[0]: line for line in of(outline(), "evaluate")}
    measured = {"trec": (500, 177 + 6 * 2), "ag_news": (7600, 624 + 4 * 1.5), "sst2": (1821, 313 + 2 * 1)}
    for task, (count, each) in measured.items():
        assert lines[task].tokens == pytest.approx(count * each, rel=0.25)
        assert lines[task].amount.startswith(f"{count:,} test examples at most")


def test_settings_limits_objectives_and_seeds_are_honoured() -> None:
    found = outline(
        "tasks=trec,sst2",
        "recipe.max_tokens=4000000",
        objectives=("mle", "tailr-official(gamma=0.8)", "pretrained"),
        seeds=(3, 4),
        limit=50,
        device="cuda",
        dtype="bfloat16",
    )
    trained = of(found, "train")
    assert [line.what.split(", on")[0] for line in trained] == [
        *("mle, seed 3", "mle, seed 4", "tailr-official(gamma=0.8), seed 3", "tailr-official(gamma=0.8), seed 4")
    ]
    assert {(line.tokens, line.steps) for line in trained} == {(4_000_000 // 256 * 255, 977)}
    assert [line.amount.split(" ")[0] for line in of(found, "evaluate")] == ["50"] * 2 * 5
    assert not [line for line in found.lines if "mmlu" in line.what]
    assert "add --device" not in "\n".join(found.notes())
    assert of(outline("icl.retriever=bm25"), "embed") == []
    alone = outline(objectives=("pretrained",))
    assert of(alone, "train") == []
    assert not [line for line in of(alone, "download") if "corpus" in line.what]


def test_what_is_too_large_for_one_gpu_is_said() -> None:
    full = outline("recipe.lora=false", device="cuda")
    assert any(note.startswith("Too large: ") and "more than the 80.0 GB" in note for note in full.notes())
    assert not any(note.startswith("Too large") for note in outline(device="cuda").notes())
    lean = outline("recipe.lora=false", "recipe.precision=bfloat16", device="cuda", dtype="bfloat16")
    assert not any(note.startswith("Too large") for note in lean.notes())


def test_a_model_of_unknown_size_has_amounts_and_no_times() -> None:
    found = outline(model="some-org/some-model")
    (training,) = of(found, "train")
    assert training.tokens
    assert (training.seconds, training.memory_bytes) == (None, None)
    assert "The size of some-org/some-model is not known here" in "\n".join(found.notes())
    # Its weights, the training and eight evaluations; and the pool of CR.
    assert found.totals().unknown == 11


@pytest.mark.parametrize(
    ("settings", "given", "error", "said"),
    [
        ((), {"model": "lama-7b"}, UnknownNameError, "no model 'lama-7b'; did you mean 'llama-7b'"),
        ((), {"model": "./nowhere"}, UserError, "there is no such folder"),
        ((), {"objectives": ("emoo",)}, UnknownNameError, "did you mean 'emo'"),
        ((), {"objectives": ("tailr(gama=1)",)}, UnknownNameError, "'gama'"),
        (("tasks=trek",), {}, UnknownNameError, "did you mean 'trec'"),
        (("recipe.epoch=1",), {}, UnknownNameError, "recipe.epochs"),
        (("generation.prefix=1",), {}, ConfigError, "no task here is of kind 'generation'"),
        (("icl.retriever=bm26",), {}, UnknownNameError, "did you mean 'bm25'"),
        (("icl.encoder=./nowhere",), {}, UserError, "nowhere"),
        ((), {"device": "gpu"}, UserError, "gpu"),
        (("corpus=wikitext",), {}, UnknownNameError, "did you mean 'wikitext"),
    ],
)
def test_what_is_wrong_is_refused_without_a_hub(
    settings: tuple[str, ...], given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        outline(*settings, **given)


def local(byte_model: Path, *folders: Path, **given: Any) -> Outline:
    settings = ("tasks=sst2,trec", "corpus=wikitext2", "recipe.max_length=32", "icl.shots=2", "icl.retriever=bm25")
    chosen: dict[str, Any] = {"model": str(byte_model), "data_dirs": folders, "offline": True, **given}
    return outline(*settings, **chosen)


def test_what_is_here_is_counted(byte_model: Path, small_data: Path, labelled: Path, tmp_path: Path) -> None:
    found = local(byte_model, small_data, labelled, runs=tmp_path / "runs")
    assert of(found, "download") == []
    texts = [json.loads(line)["text"] for line in (small_data / "wikitext2.train.jsonl").read_text().splitlines()]
    rows = sum(map(len, texts)) // 32  # a byte a token
    (training,) = of(found, "train")
    assert training.amount == f"{rows * 31:,} target tokens, {-(-rows // 16)} steps"
    assert training.seconds
    assert [line.amount.split(",")[0] for line in of(found, "evaluate")] == ["30 test examples at most"] * 2
    assert not (tmp_path / "runs").exists()


def test_data_that_is_here_is_counted_where_other_data_is_not(byte_model: Path, labelled: Path) -> None:
    found = local(byte_model, labelled)
    assert {line.what for line in of(found, "download")} == {
        "corpus wikitext2 (train) from Salesforce/wikitext",
        "corpus wikitext2 (validation) from Salesforce/wikitext",
    }
    assert [line.amount.split(",")[0] for line in of(found, "evaluate")] == ["30 test examples at most"] * 2
    assert {line.state for line in found.lines} == {TO_DO}


def test_a_local_file_that_cannot_be_read_is_an_error(byte_model: Path, tmp_path: Path) -> None:
    (tmp_path / "wikitext2.train.jsonl").write_text("no json\n")
    with pytest.raises(UserError, match=r"wikitext2\.train\.jsonl:1"):
        local(byte_model, tmp_path)


def test_outlines_are_joined_and_condensed() -> None:
    one, two = outline("tasks=sst2"), outline("tasks=sst2,trec")
    both = one.joined(two)
    assert len(both.lines) == len(two.lines)
    assert [line.stage for line in both.lines] == sorted(
        (line.stage for line in two.lines), key=["download", "embed", "train", "evaluate"].index
    )
    short = both.condensed()
    (evaluated,) = of(short, "evaluate")
    assert evaluated.what == "emo, seed 0"
    assert evaluated.tokens == sum(line.tokens or 0 for line in of(both, "evaluate"))
    assert short.totals().tokens == both.totals().tokens
    assert short.totals().download_bytes == both.totals().download_bytes


def test_what_is_finished_is_not_in_the_totals() -> None:
    line = StageLine(stage="train", what="mle", amount="", tokens=5, seconds=1.0, memory_bytes=7)
    found = outline("tasks=trec")
    done = Outline("t", (line, StageLine(**{**vars(line), "state": DONE, "tokens": 9})), found.machine, ())
    assert (done.totals().tokens["train"], done.totals().seconds["train"], done.totals().memory_bytes) == (5, 1.0, 7)
    finished = Outline("t", (StageLine(**{**vars(line), "state": DONE}),), found.machine, ())
    assert finished.notes() == ["All is finished."]
