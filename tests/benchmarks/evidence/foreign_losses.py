"""What the losses of other programs compute for one batch, beside emobench's objectives: docs/evidence/losses.md.

    python tests/benchmarks evidence.foreign_losses [--packages FOLDER ...]

Each row is `emobench objectives check LOSS --like OBJECTIVE` in a process of its own, on a CPU; Liger's kernels run in
Triton's interpreter. transformers, TRL and liger-kernel are those of the `dev` extra. Others are in folders of their
own, which --packages names, and whose losses are left out otherwise:

    pip install --no-deps --target FOLDER axolotl
    pip install --no-deps --target FOLDER llamafactory trl==0.24.0 omegaconf antlr4-python3-runtime==4.9.3
    pip install --no-deps --target FOLDER torchtitan spmd_types tyro typeguard docstring_parser
    pip install --no-deps --target FOLDER liger-kernel==0.8.1    # before its token weights were mended

TRL computes its loss in `SFTTrainer.compute_loss`; `trl_nll` and `trl_dft` are its formulas on its kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__)
PAGE = HERE.parents[3] / "docs" / "evidence" / "losses.md"
LIGER = "liger_kernel.transformers:LigerFusedLinearCrossEntropyLoss"
LOSSES = (
    ("torch", "torch.nn.functional:cross_entropy", "mle"),
    ("transformers", "transformers.loss.loss_utils:ForCausalLMLoss", "mle"),
    ("trl", f"{HERE}:trl_nll", "mle"),
    ("trl", f"{HERE}:trl_dft", "dft"),
    ("liger-kernel", f"{LIGER}(reduction=sum)", "mle"),
    ("liger-kernel", f"{LIGER}(reduction=none)", "mle"),
    ("liger-kernel", f"{LIGER}(reduction=sum, use_token_scaling=true)", "dft"),
    ("axolotl", "axolotl.monkeypatch.loss.eaft:eaft_loss", "eaft-top-k"),
    ("llamafactory", "llamafactory.train.trainer_utils:dft_loss_func", "dft"),
    ("llamafactory", "llamafactory.train.trainer_utils:eaft_loss_func", "eaft-top-k"),
    ("llamafactory", "llamafactory.train.trainer_utils:asft_loss_func", "asft"),
    ("torchtitan", "torchtitan.components.loss:cross_entropy_loss", "mle"),
)
"""Distributions, the losses as the command names them, and the objectives that they should equal."""
SHOWN = ("value", "gradient", "scale", "accumulated", "padded", "weighted", "single")
SIGNS = {"ok": "yes", "failed": "**no**", "skipped": "-"}


def trl_nll(weight: Tensor, hidden: Tensor, labels: Tensor, num_items_in_batch: Tensor) -> Tensor:
    return -_trl_log_probs(weight, hidden, labels).sum() / num_items_in_batch.clamp(min=1)


def trl_dft(weight: Tensor, hidden: Tensor, labels: Tensor, num_items_in_batch: Tensor) -> Tensor:
    log_probs = _trl_log_probs(weight, hidden, labels)
    return -(log_probs * log_probs.exp().detach()).sum() / num_items_in_batch.clamp(min=1)


def _trl_log_probs(weight: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:
    from trl.kernels import ChunkedLogProbFunction  # type: ignore[import-not-found]

    mask = labels != -100
    given = (1.0, 16, None, 1.0, ("log_probs",))
    return ChunkedLogProbFunction.apply(hidden, weight, None, labels.clamp(min=0), *given)[0].masked_fill(~mask, 0)


def checked(loss: str, like: str, folder: Path | None) -> dict[str, Any] | None:
    """Return the report of the command; None if the loss cannot be imported."""
    paths = [*([str(folder)] if folder else []), str(HERE.parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRITON_INTERPRET": "1"}
    environment["DISABLE_VERSION_CHECK"] = "1"  # of LLaMA-Factory, which pins transformers
    words = ["objectives", "check", loss, "--like", like, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "emobench", *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        print(f"{loss}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def measured(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a row for each loss and each version of its package."""
    rows = []
    for folder in (None, *folders):
        path = {} if folder is None else {"path": [str(folder)]}
        versions = {found.name.lower().replace("_", "-"): found.version for found in distributions(**path)}
        for package, loss, like in LOSSES:
            if package not in versions:
                continue
            report = checked(loss, like, folder)
            if report is None:
                continue
            outcomes = {check["name"]: check for check in report["checks"]}
            problems = {}
            for name, outcome in outcomes.items():
                if outcome["status"] == "failed":
                    problems[name] = outcome["found"]
            shown = {name: outcomes[name]["status"] for name in SHOWN}
            name = loss.rpartition(":")[2]
            row = {"package": package, "version": versions[package], "loss": name, "like": like}
            rows.append({**row, "note": report["note"], "checks": shown, "problems": problems})
    return rows


def table(found: dict[str, Any]) -> str:
    """Return the page's table and the problems below it."""
    heads = ("program", "loss", "like", *SHOWN, "other failed checks")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in found["rows"]:
        others = [name for name in row["problems"] if name not in SHOWN]
        cells = [f"{row['package']} {row['version']}", f"`{row['loss']}`", f"`{row['like']}`"]
        cells += [SIGNS[row["checks"][name]] for name in SHOWN]
        lines.append(f"| {' | '.join([*cells, ', '.join(others) or '-'])} |")
    lines.append("")
    for row in found["rows"]:
        for name, problem in row["problems"].items():
            lines.append(f"- {row['package']} {row['version']}, `{row['loss']}`, {name}: {problem}")
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("emobench", "torch", "transformers"))
    lines += ["", f"Measured {found['date']} by `{found['command']}` ({versions}; CPU, one thread)."]
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    from evidence.smollm2_page import filled
    from measuring import RESULTS, origin, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, action="append", default=[])
    folders = parser.parse_args(argv).packages
    torch.set_num_threads(1)
    found = {**origin(__file__, [], "cpu"), "rows": measured(folders)}
    write(found, RESULTS / "evidence" / "foreign_losses-cpu.json")
    PAGE.write_text(filled(PAGE.read_text(), "losses", table(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
