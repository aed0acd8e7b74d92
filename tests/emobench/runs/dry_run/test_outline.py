"""A dry run asks no hub, knows the size of what is not here, and counts what is."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants

from emobench.core.errors import ConfigError, ModelError, UnknownNameError, UserError
from emobench.core.settings import parse_overrides
from emobench.data.sources import CORPORA
from emobench.models import packaged
from emobench.registry import find_table
from emobench.reproduce.run import outline_table
from emobench.runs.dry_run import DONE, TO_DO, Outline, StageLine, grouped, make_outline
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning import estimate
from emobench.runs.planning.ingredients import Ingredients, base_model, shown_name
from emobench.runs.planning.request import Request
from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.stage import Stages

N = 6_738_415_616
TASKS = ("tweet_emotion", "sst2", "trec", "subj", "cr", "rotten_tomatoes", "ag_news", "mmlu")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, no packaged models, no GPU, and no way out: the hub's own switch for offline work stays off."""

    def refuse(*_: object) -> None:
        raise AssertionError("a dry run opened a connection")

    def missing(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(packaged, "distribution", missing)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def outline(*settings: str, **given: Any) -> Outline:
    """Return the outline of a request for a GPU, which is elsewhere."""
    chosen: dict[str, Any] = {"suite": "nlu", "objectives": ("emo",), "model": "llama-7b", "device": "cuda", **given}
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
    assert training.seconds == pytest.approx(4 * N * (training.tokens or 0) / (0.4 * 989e12))
    assert training.memory_bytes is not None
    assert 4 * N < training.memory_bytes < 80e9
    assert [line.what.split(", ")[2].split(" ")[0] for line in of(found, "evaluate")] == list(TASKS)
    for line in of(found, "evaluate"):
        assert line.seconds == pytest.approx(2 * N * (line.tokens or 0) / (0.4 * 67e12))
    downloads = {line.what: line.download_bytes for line in of(found, "download")}
    assert downloads["model llama-7b from huggyllama/llama-7b"] == 2 * N
    encoder = downloads["sentence encoder all-mpnet-base-v2 from sentence-transformers/all-mpnet-base-v2"]
    assert encoder == pytest.approx(0.438e9, rel=1e-3)
    assert {f"data set {task}" for task in TASKS} <= {what.split(" from ")[0] for what in downloads}
    assert found.totals().download_bytes == sum(size or 0 for size in downloads.values())
    assert found.totals().tokens["train"] == training.tokens


def test_estimates_are_near_what_was_measured() -> None:
    """Tokens of a prompt with 8 retrieved shots, measured with a BPE of English: TREC 177 and 6 labels of 3 tokens, AG
    News 624 and 4 of 2.5, SST-2 313 and 2 of 2. A LLaMA's are about as many."""
    lines = {line.what.split(", ")[2].split(" ")[0]: line for line in of(outline(), "evaluate")}
    measured = {"trec": (500, 177 + 6 * 2), "ag_news": (7600, 624 + 4 * 1.5), "sst2": (1821, 313 + 2 * 1)}
    for task, (count, each) in measured.items():
        assert lines[task].tokens == pytest.approx(count * each, rel=0.25)
        assert lines[task].amount.startswith(f"at most {count:,} examples, ~")


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
    assert [line.amount.split(",")[0] for line in of(found, "evaluate")] == ["at most 50 examples"] * 2 * 5
    assert not [line for line in found.lines if "mmlu" in line.what]
    alone = outline(objectives=("pretrained",))
    assert of(alone, "train") == []
    assert not [line for line in of(alone, "download") if "corpus" in line.what]


def test_what_is_too_large_for_one_gpu_is_said() -> None:
    full = outline("recipe.lora=false", device="cuda")
    assert any(note.startswith("Too large: ") and "more than the 80.0 GB" in note for note in full.notes())
    assert not any(note.startswith("Too large") for note in outline(device="cuda").notes())
    lean = outline("recipe.lora=false", "recipe.weight_dtype=bfloat16", device="cuda", dtype="bfloat16")
    assert not any(note.startswith("Too large") for note in lean.notes())
    assert lean.ahead[0].startswith("Warning: recipe continual-wikitext103 trains bfloat16")


def test_a_row_of_an_instruction_recipe_is_a_conversation() -> None:
    """Not a block of its maximal length: the steps are those of the Trainer on so many rows."""
    for name, count in (("alpaca-gpt4", 52_002 - 500), ("open-platypus", 24_926 - 499)):
        given = {"suite": None, "recipe": name}
        (training,) = of(outline(**given), "train")
        assert training.steps == 3 * -(-count // 128)
        assert training.steps_at_rate_0 == 1
        (shorter,) = of(outline("recipe.max_length=1024", **given), "train")
        assert shorter.steps == training.steps
    (unknown,) = of(outline(suite=None, recipe="evol-instruct-70k"), "train")
    assert unknown.steps is None
    assert unknown.amount.endswith("target tokens")


def test_memory_is_that_of_the_micro_batches_that_fit() -> None:
    """As the training does when a GPU's memory is used up; on a CPU, the system would end the process."""
    given = {"suite": None, "recipe": "alpaca-gpt4"}
    (training,) = of(outline("recipe.lora=true", **given), "train")
    accumulation = training.accumulation
    assert accumulation is not None
    assert 128 % accumulation == 0
    assert 27e9 < (training.memory_bytes or 0) <= 80e9
    (twice,) = of(outline("recipe.lora=true", f"recipe.accumulation={accumulation // 2}", **given), "train")
    assert twice.memory_bytes == training.memory_bytes
    (same,) = of(outline("recipe.lora=true", f"recipe.accumulation={accumulation}", **given), "train")
    assert (same.memory_bytes, same.accumulation) == (training.memory_bytes, None)
    assert (same.steps, same.tokens) == (training.steps, training.tokens)
    found = outline("recipe.lora=true", **given)
    assert not any(note.startswith("Too large") for note in found.notes())
    assert f" of {accumulation} micro-batches, which fit the memory" in training.amount


def test_what_is_missing_offline_is_no_download() -> None:
    """A run would stop, so that nothing is planned to be downloaded."""
    online, offline = outline(), outline(offline=True)
    assert of(offline, "download") == []
    assert [line.what for line in of(offline, "missing")] == [line.what for line in of(online, "download")]
    assert {line.state for line in of(offline, "missing")} == {"not here"}
    assert offline.totals().download_bytes == 0
    assert offline.notes()[0].startswith("With --offline this run would stop: these are missing: ")
    assert not any("to download" in note for note in offline.notes())
    assert offline.totals().time == online.totals().time


def test_a_model_of_unknown_size_has_amounts_and_no_times() -> None:
    found = outline(model="some-org/some-model")
    (training,) = of(found, "train")
    assert training.tokens
    assert (training.seconds, training.memory_bytes) == (None, None)
    assert "The size of some-org/some-model is unknown" in "\n".join(found.notes())
    # Its weights, the training and eight evaluations.
    assert found.totals().unknown == 10


@pytest.mark.parametrize(
    ("settings", "given", "error", "said"),
    [
        ((), {"model": "lama-7b"}, UnknownNameError, "no model 'lama-7b'; did you mean 'llama-7b'"),
        ((), {"model": "./nowhere"}, UserError, "there is no such file or folder"),
        ((), {"objectives": ("emoo",)}, UnknownNameError, "did you mean 'emo'"),
        ((), {"objectives": ("tailr(gama=1)",)}, UnknownNameError, "'gama'"),
        (("tasks=trek",), {}, UnknownNameError, "did you mean 'trec'"),
        (("recipe.epoch=1",), {}, UnknownNameError, "recipe.epochs"),
        (("generation.prefix=1",), {}, ConfigError, "--set generation: "),
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


def test_an_encoder_of_coherence_that_is_none_is_refused_with_its_own_advice() -> None:
    request = Request(suite="generation", model="gpt2", settings=parse_overrides(["coherence.encoder=no/such/one"]))
    with pytest.raises(
        UserError, match=r"--set coherence\.encoder=no/such/one.*is not a folder.*--set coherence\.encoder=null"
    ):
        make_outline(request)


def local(byte_model: Path, *folders: Path, **given: Any) -> Outline:
    settings = ("tasks=sst2,trec", "corpus=wikitext2", "recipe.max_length=32", "icl.shots=2", "icl.retriever=bm25")
    chosen: dict[str, Any] = {"model": str(byte_model), "data_dirs": folders, "offline": True, **given}
    return outline(*settings, **chosen)


def test_a_split_that_is_filled_up_from_another_needs_its_download() -> None:
    """WebText's test split is filled up to 5,000 texts from the training file."""
    at = Ingredients(Request(suite="generation"), look=True)
    assert at.texts("webtext", "test") is None
    assert {"corpus webtext (test)", "corpus webtext (train)"} <= at.missing.keys()


def test_what_is_here_is_counted(byte_model: Path, small_data: Path, labelled: Path, tmp_path: Path) -> None:
    found = local(byte_model, small_data, labelled, runs=tmp_path / "runs")
    assert of(found, "download") == []
    texts = [json.loads(line)["text"] for line in (small_data / "wikitext2.train.jsonl").read_text().splitlines()]
    rows = sum(map(len, texts)) // 32  # a byte a token
    (training,) = of(found, "train")
    steps = f"{-(-rows // 16)} steps (1 at a rate of 0)"
    assert training.amount == f"{rows * 31:,} target tokens, {steps}"
    assert training.seconds
    assert not any("--set recipe.batch" in note for note in found.notes())
    assert [line.amount.split(",")[0] for line in of(found, "evaluate")] == ["at most 30 examples"] * 2
    assert not (tmp_path / "runs").exists()


def test_a_validation_that_takes_longer_than_the_training_is_noted(
    byte_model: Path, small_data: Path, tmp_path: Path
) -> None:
    asked = Request(
        recipe="lm-finetune",
        objectives=("mle",),
        model=str(byte_model),
        data_dirs=(small_data,),
        device="cpu",
        offline=True,
        runs=tmp_path,
        settings={"recipe": {"max_length": 32, "max_tokens": 64, "epochs": 1, "warmup": 0}},
    )
    long = make_outline(asked)
    (note,) = [note for note in long.notes() if "recipe.validation_tokens" in note]
    texts = [json.loads(line)["text"] for line in (small_data / "wikitext2.validation.jsonl").read_text().splitlines()]
    assert f"reads {sum(map(len, texts)) // 32 * 31:,} tokens" in note
    assert "only 62 are" in note
    assert any("only 1 step of 32 sequences" in note and "--set recipe.batch" in note for note in long.notes())
    settings = {"recipe": {**asked.settings["recipe"], "validation_tokens": 64}}
    short = make_outline(replace(asked, settings=settings))
    assert not [note for note in short.notes() if "recipe.validation_tokens" in note]
    assert (of(short, "train")[0].seconds or 0) < (of(long, "train")[0].seconds or 0)


def test_data_that_is_here_is_counted_where_other_data_is_not(byte_model: Path, labelled: Path) -> None:
    found = local(byte_model, labelled)
    assert {line.what for line in of(found, "missing")} == {
        "corpus wikitext2 (train) from Salesforce/wikitext",
        "corpus wikitext2 (validation) from Salesforce/wikitext",
    }
    assert [line.amount.split(",")[0] for line in of(found, "evaluate")] == ["at most 30 examples"] * 2
    assert {line.state for line in found.lines} == {TO_DO, "not here"}


def test_a_local_file_that_cannot_be_read_is_an_error(byte_model: Path, tmp_path: Path) -> None:
    (tmp_path / "wikitext2.train.jsonl").write_text("no json\n")
    with pytest.raises(UserError, match=r"wikitext2\.train\.jsonl:1"):
        local(byte_model, tmp_path)


def test_outlines_are_joined() -> None:
    one, two = outline("tasks=sst2"), outline("tasks=sst2,trec")
    both = one.joined(two)
    assert len(both.lines) == len(two.lines)
    assert [line.stage for line in both.lines] == sorted(
        (line.stage for line in two.lines), key=["download", "train", "evaluate"].index
    )
    assert both.totals() == two.totals()


def test_times_are_of_the_device_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU's are by its own rate and without half precision, which a recipe takes on a GPU alone."""
    monkeypatch.setattr(estimate, "_timed", lambda device, precision: {"float32": 50e9}[precision])
    found = outline("tasks=sst2", device="cpu")
    assert found.machine.name == "this CPU"
    (training,), (evaluation,) = of(found, "train"), of(found, "evaluate")
    assert training.seconds == pytest.approx(4 * N * (training.tokens or 0) / 25e9)
    assert evaluation.seconds == pytest.approx(2 * N * (evaluation.tokens or 0) / 25e9)


def test_the_pre_training_of_a_made_model_is_a_stage(tmp_path: Path) -> None:
    asked = Request(suite="oracle-language", objectives=("mle",), seeds=(0,), runs=tmp_path)
    found = make_outline(asked)
    first, trained = of(found, "train")
    assert (first.what, first.state) == ("pre-train tiny-oracle on oracle-source, once", TO_DO)
    planned = base_model(first.what.split(" ")[1], asked).made_by.stage
    packed = PackedCorpora(Stages(tmp_path), Silent()).rows(planned.corpora["train"])
    assert first.tokens == packed.target_count
    assert first.steps == -(-len(packed) // planned.recipe.batch)
    assert first.seconds
    assert found.totals().tokens["train"] == (first.tokens or 0) + (trained.tokens or 0)
    tiny = TINY_MODELS["tiny-oracle"]
    Stages(tmp_path).make(planned, lambda folder: write_untrained(tiny, folder / "model"))
    after = make_outline(asked)
    assert [line.state for line in of(after, "train")] == [DONE, TO_DO]
    assert after.totals().tokens["train"] == trained.tokens


def test_what_is_given_as_a_folder_is_shown_by_its_name(byte_model: Path, labelled: Path, small_data: Path) -> None:
    found = local(byte_model, small_data, labelled)
    assert found.title.endswith(f"with {byte_model.name}")
    assert shown_name(str(byte_model)) == byte_model.name
    assert [shown_name(name) for name in ("gpt2", "some-org/some-model")] == ["gpt2", "some-org/some-model"]
    settings = parse_overrides(
        [
            "tasks=sst2",
            "corpus=wikitext2",
            "recipe.max_length=32",
            "icl.held_out=8",
            "icl.shots=2",
            "icl.retriever=bm25",
        ]
    )
    asked = Request(suite="nlu", settings=settings, model=str(byte_model), data_dirs=(small_data, labelled))
    lines = outline_table(find_table("table-8"), asked).lines
    assert not [line.what for line in lines if str(byte_model.parent) in line.what]
    assert f"{byte_model.name}: mle, seed 0, on wikitext2" in [line.what for line in lines]


GPT2, LARGE, NEO = 124_439_808, 774_030_080, 1_315_575_808


def test_models_beside_the_evaluated_one_count_by_their_own_size() -> None:
    found = outline("tasks=ptb", suite="generation", model="gpt2", objectives=("mle",), seeds=(0,), limit=100)
    (line,) = of(found, "evaluate")
    texts = 100 * 256  # tokens of the test text, as many blocks as --limit leaves
    own, features = 100 * (5 + 5 * 25) + texts, 100 * 6 * 30
    assert line.tokens == own + features
    steps = 25 * 1
    assert line.seconds == pytest.approx((2 * GPT2 * own + 2 * LARGE * features) / (0.4 * 67e12) + steps * 0.025)
    cache = 2 * 16384 * 12 * 768 * 4
    assert line.memory_bytes == 4 * GPT2 + (1 << 30) + cache + 4 * LARGE
    assert {"model gpt2", "model gpt2-large"} <= {line.what.split(" from")[0] for line in of(found, "download")}
    oracle = outline(suite="gpt2-oracle", model="gpt2", objectives=("mle",), seeds=(0,), limit=100)
    (with_oracle,) = of(oracle, "evaluate")
    assert with_oracle.memory_bytes == line.memory_bytes  # one model in two uses


def test_a_surrogate_is_read_beside_the_model() -> None:
    found = outline("tasks=wikitext2", suite="figure-2", model="gpt2", objectives=("mle",), seeds=(0,))
    (line,) = of(found, "evaluate")
    read = int(1_140_000 / 4.5)
    assert line.tokens == 2 * read
    assert line.seconds == pytest.approx(2 * read * (GPT2 + NEO) / (0.4 * 67e12))
    assert line.memory_bytes == 4 * GPT2 + (1 << 30) + 4 * NEO


def test_what_is_finished_is_not_in_the_totals() -> None:
    line = StageLine(stage="train", what="mle", amount="", tokens=5, seconds=1.0, memory_bytes=7)
    found = outline("tasks=trec")
    done = Outline("t", (line, StageLine(**{**vars(line), "state": DONE, "tokens": 9})), found.machine, ())
    assert (done.totals().tokens["train"], done.totals().seconds["train"], done.totals().memory_bytes) == (5, 1.0, 7)
    finished = Outline("t", (StageLine(**{**vars(line), "state": DONE}),), found.machine, ())
    assert finished.notes() == ["All stages are finished."]


def test_a_model_beside_that_is_not_there_is_named_by_its_setting() -> None:
    for setting in ("mauve.featurizer=/no/such", "oracle.model=/no/such"):
        with pytest.raises(ModelError, match=f"^--set {setting}: there is no such file or folder"):
            outline("tasks=wikitext2", setting, suite="generation", model="gpt2", objectives=("mle",), seeds=(0,))


def of_stage(lines: list[StageLine], stage: str) -> list[StageLine]:
    return [line for line in lines if line.stage == stage]


def test_seeds_are_one_line_with_the_sum() -> None:
    full = outline("tasks=sst2,trec", objectives=("mle", "emo"), seeds=(0, 1, 2))
    lines = grouped(full)
    assert [line.what for line in of_stage(lines, "train")] == [
        f"{o}, 3 trainings, on wikitext103" for o in ("mle", "emo")
    ]
    assert [line.what.split(" paper")[0] for line in of_stage(lines, "evaluate")] == [
        f"{objective}, 3 evaluations, {task}" for objective in ("mle", "emo") for task in ("sst2", "trec")
    ]
    steps = of_stage(full.lines, "train")[0].steps
    assert all(line.amount.endswith(f" tokens, {steps:,} steps each") for line in of_stage(lines, "train"))
    assert replace(full, lines=tuple(lines)).totals().tokens == full.totals().tokens
    assert replace(full, lines=tuple(lines)).totals().seconds == pytest.approx(full.totals().seconds)


def test_what_is_partly_finished_is_said_and_its_time_is_of_the_rest() -> None:
    found = outline("tasks=sst2", objectives=("mle",), seeds=(0, 1, 2))
    first = next(line for line in found.lines if line.stage == "train")
    lines = tuple(replace(line, state=DONE if line.seed in (0, 1) else TO_DO) for line in found.lines)
    (partly,) = of_stage(grouped(replace(found, lines=lines)), "train")
    assert (partly.state, partly.seconds) == ("2 of 3 finished", first.seconds)
    assert partly.estimate == first.estimate
    (whole,) = of_stage(grouped(replace(found, lines=tuple(replace(line, state=DONE) for line in lines))), "train")
    assert (whole.state, whole.estimate) == (DONE, "")


def test_the_tasks_of_a_table_are_one_line() -> None:
    full = outline_table(find_table("table-3"), Request(suite="nlu", seeds=(0,)))
    lines = grouped(full)
    assert len(of_stage(lines, "train")) == 2 * (2 + 3 + 3)
    assert replace(full, lines=tuple(lines)).totals().tokens == full.totals().tokens
    evaluated = {line.what for line in of_stage(lines, "evaluate")}
    assert {"llama-7b, to choose: mixce(gamma=0.9), 7 evaluations", "llama-7b: emo, 8 evaluations"} <= evaluated
