"""Kills an instruction-tuned and judged run at random moments, and compares with an undisturbed one.

The run trains with MLE and EMO, answers instructions, and has the answers compared with references by a
server on the loopback, in a process of its own, that prefers the longer response and notes what it is asked. Killed
(SIGKILL) so many times, and given again, it must end in the same entries. A request whose reply was kept is never sent
again; one that is under way when the run is killed is.

    python tests/benchmarks faults.judged [--data-dir DIR] [--kills 10] [--seed 0] [--folder DIR] [--out FILE]

With --data-dir it is SmolLM2 with adapters, on the first rows of its responses.train.jsonl and instructions.test.jsonl.
Without, it is a model of bytes on made-up rows, which needs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from faults.interrupted import LEFT
from faults.jobs import Command, Finished, entries, quiet_machine
from measuring import RESULTS, origin, write
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

ROWS = {"responses.train.jsonl": 60, "instructions.test.jsonl": 6}
CONCURRENCY = 2
SETTINGS = ("recipe.batch=4", "judge.name=pandalm", "judge.model=longer", f"judge.concurrency={CONCURRENCY}")
REAL = ("recipe.lora=true", "recipe.epochs=2", "recipe.max_length=160", "recipe.max_tokens=1500")
REAL_ANSWERS = ("instruct.max_new_tokens=10",)
BYTES = ("recipe.epochs=3", "recipe.max_length=256", "recipe.max_tokens=6000", "recipe.learning_rate=1e-3")
BYTES_ANSWERS = ("instruct.max_new_tokens=24",)
BYTES_ROWS = 240, 24
"""Responses to train on, and instructions."""
LONGEST = 1800.0
"""Seconds after which a command that was not killed has hung."""


def serve(asked: Path) -> None:
    """Answer PandaLM's requests until the process is ended, and add the digest of each to a file; print the address."""
    tests = Path(__file__).resolve().parents[2] / "emobench" / "kinds" / "instruct"
    sys.path.insert(0, str(tests))
    from endpoints import serving
    from test_judged import longer

    def answer(prompt: str) -> str:
        with asked.open("a") as file:
            file.write(hashlib.sha256(prompt.encode()).hexdigest() + "\n")
        time.sleep(0.1)
        return longer(prompt)

    with serving(answer) as server:
        server.handle_error = lambda *_: None  # a client that is killed hangs up
        print(server.url, flush=True)
        while True:
            time.sleep(1)


@contextmanager
def judge(asked: Path) -> Iterator[str]:
    """Start the server, give its address, and end it."""
    command = [sys.executable, str(Path(__file__).parents[1]), "faults.judged", "--serve", str(asked)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


@dataclass(frozen=True)
class Tuned:
    """What is trained, on what."""

    model: str
    data: Path
    settings: tuple[str, ...]


def real(data_dir: Path, data: Path) -> Tuned:
    """Return SmolLM2 with the first rows of a data folder, copied."""
    for name, count in ROWS.items():
        lines = (data_dir / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (data / name).write_text("".join(lines[:count]), encoding="utf-8")
    return Tuned("smollm2-135m-instruct", data, (*REAL, *REAL_ANSWERS))


def of_bytes(data: Path) -> Tuned:
    """Return a GPT-2 on bytes with made-up rows, written here."""
    count, asked = BYTES_ROWS
    rows = [{"instruction": f"Name {i}.", "input": "", "output": f"It is {i}, of course."} for i in range(count)]
    (data / "responses.train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rows = [{"instruction": f"Say {i}.", "input": "", "reference": f"{i}, " * (i % 5 + 1)} for i in range(asked)]
    (data / "instructions.test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({**{c: i for i, c in enumerate(alphabet)}, "<eos>": 256}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    torch.manual_seed(0)
    sizes = {"n_positions": 1024, "n_embd": 48, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}
    GPT2LMHeadModel(GPT2Config(vocab_size=257, bos_token_id=256, eos_token_id=256, **sizes)).save_pretrained(
        data / "bytes"
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<eos>", eos_token="<eos>").save_pretrained(
        data / "bytes"
    )
    return Tuned(str(data / "bytes"), data, (*BYTES, *BYTES_ANSWERS))


def words(tuned: Tuned, folder: Path, url: str) -> list[str]:
    """Return the command."""
    settings = (*SETTINGS, *tuned.settings, f"judge.url={url}")
    return [
        *("run", "--suite", "instruct", "--model", tuned.model, "--objective", "mle", "--objective", "emo"),
        *("--seed", "0", "--offline", "--device", "cpu", "--json", "--data-dir", str(tuned.data)),
        *(word for one in settings for word in ("--set", one)),
        *("--runs", str(folder / "runs"), "--leaderboard", str(folder / "board")),
    ]


def command(tuned: Tuned, folder: Path, url: str, after: float | None = None) -> Finished | None:
    """Run the command, and kill it after so many seconds; None where it was killed."""
    started = Command(words(tuned, folder, url), folder / "out")
    while after is not None and started.running() and time.monotonic() - started.began < after:
        time.sleep(0.005)
    if after is not None and started.running():
        started.kill()
        started.finish()
        return None
    return started.finish(LONGEST)


def where(folder: Path) -> str:
    """Return what is being made, by the unfinished stages of a killed run."""
    made = sorted({path.parent.name for path in (folder / "runs").glob("*/*.part")})
    return " and ".join(made) or "between stages"


def once(tuned: Tuned, folder: Path, kills: list[float]) -> dict[str, Any]:
    """Return what a run ends in that is killed after so many seconds, then those, and how often the judge was asked."""
    folder.mkdir(parents=True)
    asked, wrong = folder / "asked", []
    asked.touch()
    hit: list[str] = []
    began = time.monotonic()
    with judge(asked) as url:
        done = None
        while done is None:
            done = command(tuned, folder, url, kills.pop(0) if kills else None)
            hit += [where(folder)] if done is None else []
    if done.code or done.traceback:
        wrong.append(f"exit {done.code}: {done.err[-700:]}")
    wrong += [f"left: {path.relative_to(folder)}" for pattern in LEFT for path in folder.rglob(pattern)]
    counts = Counter(asked.read_text().split())
    return {
        "seconds": time.monotonic() - began,
        "entries": entries(folder),
        "hit": hit,
        "wrong": wrong,
        "requests": len(counts),
        "sent_again": sum(counts.values()) - len(counts),
    }


def run(data_dir: Path | None, root: Path, kills: int, seed: int) -> dict[str, Any]:
    """Return where the kills hit, and what went wrong."""
    data = root / "data"
    data.mkdir(parents=True, exist_ok=True)
    tuned = of_bytes(data) if data_dir is None else real(data_dir, data)
    whole = once(tuned, root / "whole", [])
    assert not whole["wrong"], whole["wrong"]
    print(f"undisturbed: {whole['seconds']:.0f} s, {whole['requests']} requests to the judge", flush=True)
    draw, hits, wrong, again, rounds = random.Random(seed), Counter[str](), [], 0, 0
    while hits.total() < kills:
        # What is finished already makes the next kill reach further.
        after = [draw.random() * 0.6 * whole["seconds"] for _ in range(kills - hits.total())]
        found = once(tuned, root / f"killed-{rounds}", after)
        rounds += 1
        hits.update(found["hit"])
        wrong += found["wrong"]
        again += found["sent_again"] - whole["sent_again"]
        if found["entries"] != whole["entries"]:
            wrong.append(f"round {rounds}: other entries than undisturbed")
        if found["requests"] != whole["requests"]:
            wrong.append(f"round {rounds}: {found['requests']} requests, and {whole['requests']} undisturbed")
        print(f"round {rounds}: killed in {found['hit']}, sent again {found['sent_again']}", flush=True)
    if again > CONCURRENCY * hits.total():
        wrong.append(f"{again} requests were sent again; at most {CONCURRENCY} are under way at a kill")
    return {
        "model": "a GPT-2 on bytes" if data_dir is None else tuned.model,
        "kills": hits.total(),
        "rounds": rounds,
        "hit": dict(hits),
        "requests": whole["requests"],
        "sent_again": again,
        "undisturbed_seconds": round(whole["seconds"], 1),
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="Where to work, a new folder. Default: a temporary one.")
    parser.add_argument("--out", type=Path, default=RESULTS / "faults" / "judged.json")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
    quiet_machine()
    os.environ.pop("OPENAI_API_KEY", None)
    found = run(given.data_dir, given.folder or Path(tempfile.mkdtemp()), given.kills, given.seed)
    write({**origin(__file__, sys.argv[1:], "cpu"), **found}, given.out)
    print(f"{found['kills']} kills in {found['rounds']} rounds, hit {found['hit']}; wrong: {found['wrong']}")
    return bool(found["wrong"])


if __name__ == "__main__":
    sys.exit(main())
