"""How commands grow: 1, 10 and 100 objectives x seeds, and corpora of 1, 10 and 100 MB.

    python tests/benchmarks speed.growth [--sizes 1 10 100] [--out FILE]

Each is a fresh process; its CPU seconds, user and system together, and the most memory that it held. The model is a
tiny one with weights as they are drawn, and texts are of the oracle language: what grows with a model is not measured.
A training is one step, so that the rest of a command is seen. One process of each: the smallest of three sizes has the
fixed costs, and what the two others add a unit is to be the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import RESULTS, fresh_process, origin, write

from emobench.data.oracle.language import oracle_texts
from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

LINEAR = 1.3
"""What a unit may cost up to the third size, as a multiple of what it costs up to the second."""
SEEDS = 10
MEGABYTE = 10**6


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs=3, default=(1, 10, 100))
    parser.add_argument("--out", type=Path, default=RESULTS / "speed" / "growth.json")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_untrained(TINY_MODELS["tiny-icl"], folder / "tiny-icl")
        found = {}
        for unit, commands in (("runs", runs_commands), ("megabytes", corpus_commands)):
            found[unit] = grown(folder, options.sizes, commands)
            for command, row in found[unit].items():
                print(f"{command:32} {shown(row)} for {', '.join(map(str, options.sizes))} {unit}", flush=True)
    write({**origin(__file__, argv, "cpu"), "sizes": list(options.sizes), "measured": found}, options.out)


def table(found: dict[str, Any]) -> str:
    """Return a result as a table in Markdown."""
    lines = [f"| command | {' | '.join(map(str, found['sizes']))} | most memory |", "| --- | --- | --- | --- | --- |"]
    for unit, commands in found["measured"].items():
        for command, row in commands.items():
            seconds = " | ".join(f"{value:.1f}" for value in row["cpu_seconds"])
            lines.append(f"| `{command}`, {unit} | {seconds} | {max(row['peak_bytes']) / MEGABYTE:.0f} MB |")
    return "\n".join(lines)


def shown(row: dict[str, Any]) -> str:
    """Return a row in words."""
    seconds = ", ".join(f"{value:.1f}" for value in row["cpu_seconds"])
    memory = ", ".join(f"{value / MEGABYTE:.0f}" for value in row["peak_bytes"])
    return f"{seconds} s of CPU, {memory} MB{'' if row['linear'] else ', NOT LINEAR'}"


def grown(folder: Path, sizes: tuple[int, int, int], commands: Any) -> dict[str, Any]:
    """Return what each command takes for each size, and whether it grows linearly."""
    found: dict[str, dict[str, Any]] = {}
    for size in sizes:
        for name, words in commands(folder, size):
            used = fresh_process([sys.executable, "-m", "emobench", *words], folder)
            print(f"  {size:4} {name}: {used.cpu_seconds:.1f} s", flush=True)
            row = found.setdefault(name, {"cpu_seconds": [], "peak_bytes": []})
            row["cpu_seconds"].append(round(used.cpu_seconds, 2))
            row["peak_bytes"].append(used.peak_bytes)
    for row in found.values():
        row["linear"] = is_linear(sizes, row["cpu_seconds"], 1.0) and is_linear(sizes, row["peak_bytes"], 50 * MEGABYTE)
    return found


def is_linear(sizes: tuple[int, int, int], costs: list[float], noise: float) -> bool:
    """Return whether a unit costs no more up to the third size than up to the second.

    `noise` is what a cost may be off.
    """
    to_second, to_third = ((costs[i] - costs[0]) / (sizes[i] - sizes[0]) for i in (1, 2))
    return to_third <= LINEAR * max(to_second, noise / (sizes[1] - sizes[0]))


def runs_commands(folder: Path, size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield commands about so many objectives x seeds, and the model as it is."""
    seeds = min(size, SEEDS)
    names = [f"tailr(gamma=0.{place + 10})" for place in range(-(-size // seeds))]
    places = ["--leaderboard", f"board-{size}", "--runs", f"runs-{size}"]
    given = ["run", "--suite", "nlu-tiny", "--model", "./tiny-icl", "--offline", "--device", "cpu", "--quiet", *places]
    given += [word for name in (*names, "pretrained") for word in ("--objective", name)]
    given += [word for seed in range(seeds) for word in ("--seed", str(seed))]
    settings = ("recipe.max_tokens=1024", "recipe.batch=64", "icl.shots=0", "icl.retriever=none")
    given += [word for setting in settings for word in ("--set", setting)]
    given += ["--limit", "16"]
    yield "run --dry-run", [*given, "--dry-run"]
    yield "run", given
    yield "run, all finished", given
    yield "leaderboard show", ["leaderboard", "show", *places]
    yield "compare", ["compare", names[-1], "pretrained", *places]


def corpus_commands(folder: Path, size: int) -> Iterator[tuple[str, list[str]]]:
    """Yield commands about a corpus of so many megabytes, from which a training takes one step."""
    data = folder / f"data-{size}"
    data.mkdir()
    for split, count in (("train", size * MEGABYTE), ("validation", MEGABYTE // 10)):
        write_corpus(data / f"wikitext2.{split}.jsonl", count)
    given = ["train", "--recipe", "lm-finetune", "--model", "./tiny-icl", "--objective", "mle", "--offline", "--quiet"]
    given += ["--device", "cpu", "--data-dir", str(data), "--runs", f"runs-of-{size}-MB"]
    settings = ("corpus=wikitext2", "recipe.max_length=128", "recipe.epochs=1", "recipe.max_tokens=1024")
    given += [word for setting in settings for word in ("--set", setting)]
    yield "train --dry-run, not packed", [*given, "--seed", "0", "--dry-run"]
    yield "train, with packing", [*given, "--seed", "0"]
    yield "train another seed", [*given, "--seed", "1"]
    yield "train --dry-run, packed", [*given, "--seed", "2", "--dry-run"]


def write_corpus(path: Path, size: int) -> None:
    """Write rows of about 600 bytes, of texts of the oracle language over and over, `size` bytes of text in all."""
    texts, written, place = oracle_texts("source", "train"), 0, 0
    with path.open("w") as file:
        while written < size:
            row = " ".join(texts[(place + i) % len(texts)] for i in range(8))
            file.write(json.dumps({"text": row}) + "\n")
            written, place = written + len(row), place + 8


if __name__ == "__main__":
    main(sys.argv[1:])
