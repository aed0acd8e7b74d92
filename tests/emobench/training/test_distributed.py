"""Two processes train as one does: the same losses, parts and weights, and one of them writes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import emobench
from emobench.core.errors import NonFiniteLossError
from emobench.data.packing import WEIGHTS, RowCollator
from emobench.objectives import ModelObjective
from emobench.registry import load_objective, objective_names
from emobench.training.recipe import Lora
from emobench.training.train import train
from emobench_objectives.mle import Mle

# The last batch of an epoch has 5 of 21 rows: no row is dropped, and none trains twice. 7 rows are validated on.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "emo": ("gpt2", "emo", {"epochs": 2, "batch": 8, "select": "objective"}),
    "lora": ("llama", "emo", {"epochs": 1, "batch": 8, "lora": Lora(rank=4, dropout=0.0)}),
    "weights": ("phi", "mle", {"epochs": 2, "batch": 8, "accumulation": 2, "clip": 0.5, "warmup": 0.3}),
    "fillers": ("gpt2", "emo", {"epochs": 1, "batch": 8}),
}
LONG = 4099
"""A vocabulary whose rows of logits are long: a CPU processes them one by one."""

CHILD = """
import json, os, runpy, sys
from pathlib import Path
folder, rank = Path(sys.argv[1]), os.environ["RANK"]
written = []

def audit(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    if (writes or event in ("os.remove", "os.rename", "os.rmdir")) and str(folder) in str(args[0]):
        written.append(str(Path(args[0]).relative_to(folder)))

kit = runpy.run_path(sys.argv[2])["KIT"]
tests = runpy.run_path(sys.argv[3])
sys.addaudithook(audit)
found = {name: tests["summary_of"](kit, name, folder) for name in tests["CASES"]}
endings = tests["endings"](kit, folder, rank)
alone = tests["norms_of_each_objective"](kit, int(rank))
report = {"summaries": found, "written": written, "endings": endings, "norms": alone}
Path(sys.argv[4], rank).write_text(json.dumps(report))
"""


def summary_of(kit: Any, name: str, folder: Path) -> dict[str, Any]:
    kind, objective, recipe = CASES[name]
    rows: dict[str, Any] = {"train": kit.ragged(21), "validation": kit.ragged(7, seed=1)}
    if name == "weights":  # of the first process's rows of a batch, some are all 0
        for place, row in enumerate(rows["train"]):
            row[WEIGHTS] = [0.0 if place % 8 < 4 else place / 8] * len(row["labels"])
    model = kit.tiny(kind)
    if name == "fillers":  # the second process has no row of an epoch's last batch
        rows["train"] = kit.ragged(17)
        rows["tokenizer"] = kit.tokenizer(LONG)
        model = kit.tiny(kind, vocab_size=LONG)
    job = kit.job(folder / name, model=model, objective=kit.objectives[objective](), recipe=recipe, **rows)
    return dict(vars(train(job)))


class NotFiniteInOne(Mle):
    """MLE, but NaN in the second process from its fourth call on."""

    calls = 0

    def loss(self, s: Any) -> Any:
        self.calls += 1
        bad = os.environ["RANK"] == "1" and self.calls >= 4
        return super().loss(s) * (float("nan") if bad else 1)


def endings(kit: Any, folder: Path, rank: str) -> list[str]:
    """Return how a training with NaN in one process ended here, and one with Ctrl-C in one process."""

    def interrupt(line: dict[str, float]) -> None:
        if line["step"] == 4 and "loss" in line:
            signal.raise_signal(signal.SIGINT)

    try:
        train(kit.job(folder / "nan", objective=NotFiniteInOne(), recipe={"epochs": 2}))
    except NonFiniteLossError as error:
        found = [str(error)]
    try:
        train(kit.job(folder / "stop", recipe={"epochs": 2}, progress=interrupt))
    except KeyboardInterrupt:
        found.append("interrupted")
    return found


def names() -> list[str]:
    """Return the registered objectives of tokens, with what their training needs."""
    found = []
    for name in objective_names():
        if name in ("iw-sft", "psft"):  # a column of the corpus, and copies of the model at given steps
            continue
        chosen = load_objective(name).objective
        if name == "ntl":
            name = "ntl(cost=pretrained)"  # these models have no tokenizer
        if not isinstance(chosen, ModelObjective):
            found.append(f"{name}(target=pretrained)" if "language" in chosen.reads else name)
    return found


def norms_of_each_objective(kit: Any, rank: int | None) -> dict[str, list[float]]:
    """Return the norms of the gradients of one batch by each objective. The second process has no target in its own.

    `rank` is None in a process that is alone.
    """
    together = rank is not None and not torch.distributed.is_initialized()
    if together:
        torch.distributed.init_process_group("gloo")
    batch = RowCollator(0)(kit.ragged(4))
    del batch["row"]
    count = (batch["labels"][:, 1:] != -100).sum()
    if rank == 1:
        batch["labels"] = torch.full_like(batch["labels"], -100)
    found = {}
    for name in names():
        model = kit.tiny("gpt2", vocab_size=LONG).train()
        emobench.attach(model, name)
        run = model if rank is None else torch.nn.parallel.DistributedDataParallel(model)
        processes = 1 if rank is None else 2
        (processes * run(**batch, num_items_in_batch=count).loss).backward()
        found[name] = [float(parameter.grad.norm()) for parameter in model.parameters()]
    if together:
        torch.distributed.destroy_process_group()
    return found


def in_two_processes(kit: SimpleNamespace, folder: Path, reports: Path) -> list[dict[str, Any]]:
    kit.in_two_processes("-c", CHILD, folder, kit.path, __file__, reports)
    return [json.loads((reports / str(rank)).read_text()) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft calls it
def test_two_processes_train_as_one(kit: SimpleNamespace, tmp_path: Path) -> None:
    one, two, reports = (tmp_path / name for name in ("one", "two", "reports"))
    for folder in (one, two, reports):
        folder.mkdir()
    found = in_two_processes(kit, two, reports)
    clocks = {"seconds", "tokens_per_second"}
    for name in CASES:
        expected = summary_of(kit, name, one)
        for report in found:
            summary = report["summaries"][name]
            assert summary.keys() == expected.keys()
            assert summary["selected_by"] == expected["selected_by"]
            for key in ("steps", "tokens", "selected_step", "validation_mle"):
                assert summary[key] == pytest.approx(expected[key], rel=1e-6), (name, key)
        assert kit.difference(kit.saved(two / name), kit.saved(one / name)) < 1e-6
        lines, expected_lines = kit.log_of(two / name), kit.log_of(one / name)
        assert len(lines) == len(expected_lines)
        for line, expected_line in zip(lines, expected_lines, strict=True):
            assert line.keys() == expected_line.keys()
            for key in line.keys() - clocks:
                if "runtime" not in key and "per_second" not in key and key != "eval_loss" and key != "total_flos":
                    assert line[key] == pytest.approx(expected_line[key], rel=1e-6), (name, key, line)
    expected_norms = norms_of_each_objective(kit, None)
    for report in found:
        assert report["norms"].keys() == expected_norms.keys()
        for name, norms in expected_norms.items():
            assert report["norms"][name] == pytest.approx(norms, rel=1e-9, abs=1e-12), name
    for report, where in zip(found, ("of another process", "of training rows ["), strict=True):
        assert f"The loss became NaN at step 4, in the micro-batch {where}" in report["endings"][0]
        assert report["endings"][1] == "interrupted"
    assert sorted(p.name for p in (two / "stop/checkpoints").iterdir()) == ["checkpoint-3", "checkpoint-5"]
    assert "emo/log.jsonl" in found[0]["written"]
    assert [path for path in found[1]["written"] if "rng_state_1" not in path] == []  # its own random state
