"""How far a training on a CPU moves with its threads and the processor's instructions, against how far with its seed.

    python tests/benchmarks evidence.machines [--runs DIR]

Fine-tunes one base, the tiny model, by MLE: on one thread, on two, with AVX2's instructions alone, and with
another seed; compares weights and exact distances with the first; writes results/machines-cpu.json. Two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, origin, write
from safetensors.torch import load_file

from emobench.data.oracle.language import oracle_language, oracle_texts
from emobench.kinds.oracle.evaluate import oracle_distances
from emobench.models.device import LoadOptions
from emobench.models.model import Model
from emobench.runs.execution.execution import Execution
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request

VARIANTS: dict[str, tuple[dict[str, str], int]] = {
    "1 thread": ({"OMP_NUM_THREADS": "1"}, 0),
    "2 threads": ({"OMP_NUM_THREADS": "2"}, 0),
    "AVX2": ({"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}, 0),
    "another seed": ({"OMP_NUM_THREADS": "1"}, 1),
}
"""Name -> (environment, seed)."""
METRICS = ("forward_cross_entropy", "total_variation")
TEXTS = 200


def base(runs: Path) -> Path:
    """Return the folder of the tiny model, made at first use."""
    request = Request(suite="oracle-language", offline=True, runs=runs)
    model = base_model("tiny-oracle", request)
    return Execution(request, model).folder(model.made_by.stage) / "model"


def train(model: Path, name: str, runs: Path) -> Path:
    """Return the folder of a variant, after training it unless it is finished."""
    environment, seed = VARIANTS[name]
    command = [sys.executable, "-m", "emobench", "train", "--recipe", "oracle-finetune", "--objective", "mle"]
    command += ["--model", str(model), "--seed", str(seed), "--runs", str(runs / name.replace(" ", "-"))]
    command += ["--device", "cpu", "--offline", "--quiet", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment})
    return Path(json.loads(done.stdout)["trained"][0]["model"])


def distances(folder: Path) -> dict[str, float]:
    """Return exact distances from the language, over its first test texts."""
    loaded = Model(str(folder), LoadOptions(offline=True)).load()
    ids = loaded.tokenizer(list(oracle_texts("target", "test")[:TEXTS]), add_special_tokens=False)["input_ids"]
    found = oracle_distances(loaded.model, oracle_language("target"), ids)
    return {name: found[name].value for name in METRICS}


def moved(folder: Path, first: Path) -> float:
    """Return the length of the difference of two models' weights over that of the first's."""
    weights, origins = (load_file(path / "model.safetensors") for path in (folder, first))
    differing = math.fsum(float((weights[name] - origins[name]).square().sum()) for name in origins)
    return math.sqrt(differing / math.fsum(float(weight.square().sum()) for weight in origins.values()))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    runs = parser.parse_args(argv).runs
    torch.set_num_threads(1)
    model = base(runs)
    folders = {name: train(model, name, runs) for name in VARIANTS}
    first = folders["1 thread"]
    rows: list[dict[str, Any]] = [
        {"variant": name, "weights_moved": moved(folder, first), **distances(folder)}
        for name, folder in folders.items()
    ]
    write({**origin(__file__, [], "cpu"), "texts": TEXTS, "rows": rows}, RESULTS / "evidence" / "machines-cpu.json")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main(sys.argv[1:])
