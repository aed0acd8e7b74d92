"""Changes every file that a board's readers read, at random: each ends in a value or in an error with a sentence.

    python tests/benchmarks faults.fuzz [--rounds 5000] [--seed 0]

A case is wrong if it raises anything but an error of emobench, or takes over 10 seconds. Prints each reader with the
number of cases, and each wrong case.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from emobench.core.errors import EmobenchError
from emobench.core.settings import to_plain
from emobench.exchange.every_eval_ever import files
from emobench.exchange.sharing import read_digests
from emobench.exchange.tables import card_name
from emobench.kinds.generation.samples import GeneratedSample
from emobench.kinds.icl.answers import ExampleLosses
from emobench.kinds.rows import read_rows
from emobench.leaderboard.entry import Entry, entry_id, new_entry
from emobench.leaderboard.run_files import read_examples, shortened_from, unpack
from emobench.leaderboard.store import Leaderboard, parse
from emobench.leaderboard.verify import verify
from emobench.runs.inspect.recorded_runs import read_json
from emobench.runs.planning.rebuild import find_stage
from emobench.tasks.yaml import read_yaml
from emobench.training.curves import read_curves

SECONDS = 10
TOKENS = (
    *("[" * 5000, "{" * 5000, '{"a":' * 5000, "]" * 100, "9" * 6000, "1e999", "-1e308", "NaN", "Infinity", "-0.0"),
    *("null", "true", "[]", "{}", '""', '"\\ud800"', "\0", "\\u0000", "\x1b[31m", "x" * 5000, "../" * 9, "/etc/passwd"),
    *("./a.py:B", "\u202e", "-1", "2.5", '"1"', "\n", "\n\n", ",", ":", '"', "\\"),
)
SAMPLE = {"prompt_id": "1", "sample": 0, "prefix_text": "a", "continuation_text": "b", "reference_text": "c"}


def entry() -> Entry:
    """Return an entry with something in every field."""
    file = {"path": "examples/k0/examples.jsonl", "sha256": "0" * 64}
    run = {"seed": 0, "key": "k0", "examples": file, "curves": [file], "samples": [file]}
    metric = {"mean": 0.5, "std": None, "values": [0.5], "n": 2, "higher_is_better": True, "ci95": [0.4, 0.6]}
    metric |= {"ci95_of": "items", "unit": "fraction", "flags": []}
    provenance = {"commit": "c" * 40, "packages": {"torch": "2"}, "hardware": "x", "data": {"sst2.test": "sha256:0"}}
    return new_entry(
        {
            "kind": "measured",
            "supersedes": None,
            "suite": {"name": "nlu", "version": 1},
            "protocols": {"sst2": "paper@1"},
            "changes": {"sst2": {"shots": 3}},
            "model": {"name": "tiny", "source": "org/tiny", "revision": "r"},
            "objective": {"name": "tailr", "version": "1", "params": {"gamma": 0.2}},
            "recipe": {"name": "lm", "epochs": 3, "lora": {"rank": 4}},
            "seeds": [0],
            "metrics": {"sst2/accuracy": metric},
            "missing": {"sst2/mauve": "too few texts"},
            "runs": [run],
            "cost": {"tokens": 3},
            "source": {"command": "emobench run"},
            "provenance": {**provenance, "created": "2026-01-31T12:00:00"},
        }
    )


def _lines(*rows: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _use_entry(path: Path) -> None:
    """Read an entry, also with the id of its changed content, and do with it what commands do."""
    content = path.read_bytes()
    try:
        found = parse(content, "entry")
    except EmobenchError:
        try:
            plain = json.loads(content)
            content = json.dumps({**plain, "id": entry_id(plain)}).encode()
        except (AttributeError, RecursionError, TypeError, ValueError):
            return  # no JSON of a mapping, which was refused
        found = parse(content, "entry")
    _use(found, path.parent)


def _use(found: Entry, folder: Path) -> None:
    board = Leaderboard(folder / "board")
    try:
        board.append(found)
        verify(board, folder / "runs")
        board.entries()
        for name in (card_name(found), *files(found)):
            target = folder / "out" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    finally:
        for path in sorted(board.root.rglob("*.json")):
            path.unlink()


def _unpack(path: Path) -> None:
    unpack.cache_clear()
    unpack(path, path.name.removesuffix(".xz"))


def _read_json(path: Path) -> None:
    read_json(path, entry())


def _stage(path: Path) -> None:
    find_stage(path.parents[1], path.stem)


PLANNED: dict[str, Any] = {"kind": "train", "facts": {"seed": 1}, "request": {"suite": "nlu"}, "folder": "/"}
GENERATED = {"prompt_id": "1", "sample": 0, "prefix_ids": [1], "continuation_ids": [2], "prefix_text": "a"}
GENERATED |= {"continuation_text": "b", "reference_text": "c", "ended": False}
LOSSES = {"id": "1", "shots": [], "label": "a", "prompt_nats": {"a": 1.0}, "tokens": {"a": 3}}
ROWS = [{"metric": "sst2/accuracy", "example": str(i), "value": 0.5, "weight": 1} for i in range(3)]
READERS: dict[str, tuple[str, bytes, Callable[[Path], Any]]] = {
    "entry": ("entry.json", json.dumps(to_plain(entry())).encode(), _use_entry),
    "examples": ("examples.jsonl", _lines(*ROWS), read_examples),
    "generated texts": ("samples.jsonl", _lines(GENERATED), partial(read_rows, GeneratedSample)),
    "losses": ("samples.jsonl", _lines(LOSSES), partial(read_rows, ExampleLosses)),
    "log": (
        "log.jsonl",
        _lines({"step": 1, "steps": 2, "loss": 1.5, "mle": 1.0}),
        lambda path: read_curves(path.parent),
    ),
    "packed file": ("examples.jsonl.xz", lzma.compress(_lines(*ROWS)), _unpack),
    "shortened samples": ("samples.jsonl", _lines({"shortened_from": "0" * 64}, SAMPLE), shortened_from),
    "stage": ("stage.json", json.dumps({"task": {"name": "sst2", "kind": "icl"}}).encode(), _read_json),
    "planned stage": (f"planned/{'0' * 16}.json", json.dumps(PLANNED).encode(), _stage),
    "digests": (
        "digests.txt",
        f"{hashlib.sha256(b'').hexdigest()}  nlu-v1/{'0' * 12}.json\n".encode(),
        lambda path: read_digests(path.read_bytes(), "board"),
    ),
    "suite": ("suite.yaml", b"name: suite\nversion: 1\nruns:\n  - {recipe: lm-finetune, tasks: [sst2]}\n", read_yaml),
}
"""Reader -> the file's name, a sound content, and the function that reads it."""


def changed(content: bytes, draw: random.Random) -> bytes:
    """Return content with up to three random changes."""
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(content) + 1)
        end = min(len(content), place + draw.choice((1, 1, 2, 10, 100)))
        token = draw.choice(TOKENS).encode()
        content = draw.choice(
            (
                content[:place] + token + content[place:],
                content[:place] + token + content[end:],
                content[:place] + content[end:],
                content[:place],
                content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :],
                content[:end] + content[place:],
                _other_value(content, token, draw),
            )
        )
    return content


def _other_value(content: bytes, token: bytes, draw: random.Random) -> bytes:
    """Return JSON or YAML with a token in the place of one of its values."""
    places = [i for i, byte in enumerate(content) if byte in b":[,"]
    if not places:
        return token
    place = draw.choice(places) + 1
    end = next((i for i in range(place, len(content)) if content[i] in b",}]\n"), len(content))
    return content[:place] + token + content[end:]


def fuzz(reader: str, folder: Path, rounds: int, seed: int) -> list[str]:
    """Return what went wrong with changes of a reader's file, a line each."""
    name, sound, read = READERS[reader]
    draw, path, wrong = random.Random(f"{reader} {seed}"), folder / name, []
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(rounds):
        content = sound if number == 0 else changed(sound, draw)
        path.write_bytes(content)
        began = time.monotonic()
        try:
            read(path)
        except EmobenchError:
            pass
        except Exception as error:
            wrong.append(f"{reader} {number}: {_told(error)}")
        if time.monotonic() - began > SECONDS:
            wrong.append(f"{reader} {number}: {time.monotonic() - began:.0f} s")
    return wrong


def _told(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:80]} ({frame.filename}:{frame.lineno})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = False
    for reader in READERS:
        with tempfile.TemporaryDirectory() as folder:
            wrong = fuzz(reader, Path(folder), given.rounds, given.seed)
        print(f"{reader}: {given.rounds} cases, {len(wrong)} wrong", *wrong, sep="\n  ")
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
