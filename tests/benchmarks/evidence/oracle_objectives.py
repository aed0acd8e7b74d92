"""All objectives on the suite `oracle-language`, as the table in docs/evidence/objectives.md.

    python tests/benchmarks evidence.oracle_objectives [--runs DIR] [--leaderboard DIR] [--seed N ...]

Runs what is missing (finished stages are reused), writes results/oracle_objectives-cpu.json, and from it the table
between the marks in docs/evidence/objectives.md. On two idle cores a training with its evaluation takes about 20 s:
half an hour for all objectives and two seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

from emobench.registry import objective_names

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "objectives.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
MORE = (
    "power(alpha=0.5)",
    "tailr(gamma=0.3)",
    "mixce(gamma=0.7)",
    "0.5*emo + 0.5*dft",
    "linear(1, 0)*mle + linear(0, 1)*emo",
)
"""Settings beside the defaults of every installed objective."""
OUTSIDE = {"ntl", "poly"}
"""`ntl` is about numbers, of which the language has none. `poly` is installed for the tests, and no built-in."""
COLUMNS = {
    "total_variation": ("total variation", 100, 2),
    "forward_cross_entropy": ("forward CE", 1, 3),
    "reverse_cross_entropy": ("reverse CE", 1, 3),
    "entropy": ("entropy", 1, 3),
    "ppl_test": ("PPL_test", 1, 1),
    "ppl_oracle": ("PPL_oracle", 1, 1),
    "mauve": ("MAUVE", 100, 1),
}
"""Metric -> its heading, factor and decimals."""


def emobench(*arguments: str) -> list[dict[str, Any]]:
    """Run a command, and return the entries that it recorded."""
    command = [sys.executable, "-m", "emobench", *arguments, "--offline", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["entries"]


def row(found: dict[str, Any]) -> str:
    """Return a row of the results as a line of the table."""
    cells = []
    for metric, (_, factor, decimals) in COLUMNS.items():
        if metric not in found["metrics"]:
            cells.append("-")
            continue
        mean, spread = found["metrics"][metric]
        around = "" if spread is None else f" ± {spread * factor:,.{decimals}f}"
        cells.append(f"{mean * factor:,.{decimals}f}{around}")
    return f"| `{found['objective']}` | {' | '.join(cells)} |"


def plain(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what the results keep of an entry: metric -> (mean, standard deviation over seeds or None)."""
    found = {metric: entry["metrics"].get(f"oracle-language/{metric}") for metric in COLUMNS}
    metrics = {metric: [summary["mean"], summary["std"]] for metric, summary in found.items() if summary is not None}
    return {"objective": label(entry["objective"]), "metrics": metrics}


def label(objective: dict[str, Any]) -> str:
    """Return an objective with the parameters that are not its defaults."""
    from emobench.registry import load_objective

    if objective["name"] == "pretrained" or " + " in objective["name"] or "*" in objective["name"]:
        return objective["name"]
    given = ", ".join(f"{k}={v}" for k, v in objective["params"].items())
    return repr(load_objective(f"{objective['name']}({given})" if given else objective["name"]).objective)


def table(found: dict[str, Any]) -> str:
    """Return the results as a table, nearest to the language first, and what it is."""
    rows = sorted(found["rows"], key=lambda row: row["metrics"]["total_variation"][0])
    head = ["objective", *(name for name, _, _ in COLUMNS.values())]
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("emobench", "torch", "transformers"))
    return "\n".join(
        [
            "The tiny model, fine-tuned on the target domain; mean ± standard deviation over seeds "
            f"{', '.join(map(str, found['seeds']))}. Cross-entropies",
            "and entropy in nats, total variation and MAUVE in percent; forward CE is -sum P log Q, reverse "
            "-sum Q log P. Sorted by",
            "total variation. The objectives with `target=language` are told P itself: they show what is within reach.",
            "",
            f"| {' | '.join(head)} |",
            f"|{'---|' * len(head)}",
            *map(row, rows),
            "",
            f"Measured {found['date']} by `python tests/benchmarks evidence.oracle_objectives` "
            f"({versions}; CPU, one thread).",
        ]
    )


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--leaderboard", default="leaderboards/studies/smollm2")
    parser.add_argument("--seed", action="append", default=[])
    options = parser.parse_args(argv)
    seeds = options.seed or ["0", "1"]
    shared = ["--runs", options.runs, "--leaderboard", options.leaderboard]
    names = [name for name in objective_names() if name not in OUTSIDE]
    objectives = [word for name in (*names, *MORE) for word in ("--objective", name)]
    entries = emobench("evaluate", *shared)
    entries += emobench("run", *objectives, *(word for seed in seeds for word in ("--seed", seed)), *shared)
    found = {**origin(__file__, [], "cpu"), "seeds": [int(seed) for seed in seeds], "rows": [*map(plain, entries)]}
    write(found, RESULTS / "evidence" / "oracle_objectives-cpu.json")
    text = PAGE.read_text()
    start, stop = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n{table(found)}\n{text[stop:]}")


if __name__ == "__main__":
    main(sys.argv[1:])
