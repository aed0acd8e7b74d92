"""Hostile values for every command, option, setting and file: each ends in a sentence, and never in a hang.

    python tests/benchmarks faults.hostile [--cases 1300] [--seed 0] [--out FILE]

A case is a command in a process of its own. It is wrong where it ends in an exception, takes over 30 seconds, or writes
a character that a terminal would act on. Prints the count of each end, and each wrong case.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import RESULTS, origin, write

SECONDS = 30
DEEP = 3000
ESCAPES = "\x1b[31mred \x1b]8;;x\x07 \u202e \x9b2J"
VALUES = (
    *("", " ", "-1", "0", "1e308", "nan", "1e20", "9" * 5000, "0x" + "f" * 5000, "1" + "0" * 15, "99999999999"),
    *(
        "[" * DEEP,
        "{a: " * DEEP,
        "[" * DEEP + "]" * DEEP,
        "(" * DEEP,
        "{a: &a [1], b: [*a, *a]}",
        "*a",
        "!!python/name:os",
    ),
    *("../../etc/passwd", "/dev/null", "/dev/zero", "~nosuch/x", "x" * 300, "a/" * 2100, "PIPE", "FOLDER", "BINARY"),
    *(
        ESCAPES,
        "caf\u00e9 \u03bb",
        "\udcff",
        "a\nb",
        "\r",
        "%s{}{0}",
        "=",
        "a=b",
        "name(",
        "mle+",
        "0*mle",
        "[]",
        "{}",
        "null",
    ),
    *(
        "+".join(["mle"] * 3000),
        "published:",
        "a@b",
        "2020-13-45",
        "true",
        "--help",
        "-",
        "'",
        "./x.py:Y",
        "BINARY.py:X",
    ),
)
TYPES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 10**18, 10**6, "", "x", ESCAPES, [], {}, [[]], {"a": []}, "9" * 5000, float("nan")),
    *(json.loads("[" * 60 + "]" * 60), "1403-08-01T00:00:00", "../../x", 2.0, -5.0),
)


class World:
    """A small model, corpora, a board with runs and a results file, in a folder of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        spec = importlib.util.spec_from_file_location("small", Path(__file__).parents[2] / "emobench" / "conftest.py")
        assert spec is not None
        assert spec.loader is not None
        small: Any = importlib.util.module_from_spec(spec)
        sys.modules["small"] = small
        spec.loader.exec_module(small)
        self.data = self._made(small.small_data)
        self.labelled = self._made(small.labelled)
        self.model = self._made(small.small_model, self.data)
        self.bytes = self._made(small.byte_model)
        os.mkfifo(root / "PIPE")
        (root / "FOLDER").mkdir()
        for name in ("BINARY", "BINARY.py"):
            (root / name).write_bytes(bytes(range(256)) * 10)
        results = {"results": {"t": {"alias": "t", "acc,none": 0.5, "acc_stderr,none": 0.1}}, "date": 1.8e9}
        (root / "results_1.json").write_text(json.dumps({**results, "n-samples": {"t": {"effective": 10}}}))

    def mktemp(self, name: str) -> Path:
        (self.root / name).mkdir(exist_ok=True)
        return self.root / name

    def _made(self, fixture: Any, *given: Path) -> Path:
        return fixture._fixture_function(self, *given)

    def bases(self) -> dict[str, list[str]]:
        """Return good arguments for each command, by its words."""
        at = lambda name: str(self.root / name)  # noqa: E731
        board = ["--leaderboard", at("board"), "--runs", at("runs")]
        sizes = ["--set", "recipe.max_length=32", "--set", "recipe.max_tokens=640"]
        rules = ["generation.max_length=32", "generation.prefix=4", "generation.continuation=8", "mauve.seeds=[0]"]
        small = [*(word for rule in rules for word in ("--set", rule)), "--limit", "15"]
        read = ["--model", str(self.model), "--data-dir", str(self.data), "--offline"]
        run = ["--suite", "lm-quick", *read, *small, *board]
        return {
            "run": ["--objective", "mle", *run, *sizes, "--dry-run"],
            "train": ["--objective", "mle", *read, *sizes, "--runs", at("runs"), "--dry-run"],
            "evaluate": [*run, "--dry-run"],
            "prompts": ["sst2", "--model", str(self.bytes), "--data-dir", str(self.labelled)],
            "answers": ["mle", *board],
            "samples": ["mle", *board],
            "figures": [*board, "--out", at("figures")],
            "compare": ["mle", "pretrained", *board],
            "curves": ["mle", "--runs", at("runs")],
            "reproduce": ["table-2", "--dry-run"],
            "sample-corpus": ["--model", str(self.model), "--out", at("sampled"), "--train", "2", "--validation", "2"],
            "doctor": [],
            "leaderboard show": board,
            "leaderboard export": board[:2],
            "leaderboard site": [at("site"), *board],
            "leaderboard verify": board,
            "leaderboard import": [at("results_1.json"), *board],
            "objectives list": [],
            "objectives show": ["emo"],
            "objectives new": ["mine", "--directory", at("new")],
            "objectives check": ["mle"],
            "metrics list": [],
            "metrics show": ["rouge"],
            "metrics new": ["mine", "--directory", at("new")],
            "metrics check": ["distinct"],
            "tasks list": [],
            "tasks show": ["sst2"],
            "suites list": [],
            "suites show": ["nlu"],
            "models list": [],
            "models convert": [str(self.model), at("converted")],
        }  # fmt: skip


def options(bases: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield each command with a value in the place of each of its options and arguments."""
    import typer

    from emobench import cli

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[list[str]]:
        for name, inner in getattr(command, "commands", {}).items():
            inner = command.load(name) if hasattr(command, "load") else inner
            yield from walk(inner, (*words, name))
        base = bases.get(" ".join(words))
        for parameter in command.params if base is not None else ():
            for value in VALUES:
                if parameter.param_type_name == "argument":
                    yield [*words, value, *base[1 if base and not base[0].startswith("-") else 0 :]]
                elif not getattr(parameter, "is_flag", False):
                    yield [*words, *base, parameter.opts[0], value]

    yield from walk(typer.main.get_command(cli.app), ())


def settings(base: list[str]) -> Iterator[list[str]]:
    """Yield a dry run with a value for each setting of recipes and of the task."""
    from emobench.kinds.generation.rules import GenerationProtocol
    from emobench.tasks.rules import dotted
    from emobench.training.recipe import Recipe

    keys = [f"recipe.{name}" for name in dotted(Recipe(name="r", corpus="c"))]
    keys += [f"generation.{name}" for name in dotted(GenerationProtocol())]
    for key in (
        *keys,
        "tasks",
        "corpus",
        "protocol",
        "recipe.lora.rank",
        "recipe",
        "objective.gamma",
        "lm_eval.include",
    ):
        for value in VALUES:
            yield ["run", *base, "--set", f"{key}={value}"]


def files(world: World, bases: dict[str, list[str]], count: int, chance: random.Random) -> Iterator[list[str]]:
    """Yield commands that read a model, rows, a results file or a board, of which one value is another one."""
    entries = sorted((world.root / "board").glob("*/*.json"))
    for number in range(count):
        kind = ("model", "rows", "results", "entry")[number % 4]
        place = world.root / f"changed-{number}"
        if kind == "model":
            shutil.copytree(world.model, place)
            _change(place / "config.json", chance)
            yield ["run", *bases["run"], "--model", str(place)]
        elif kind == "rows":
            shutil.copytree(world.data, place)
            split = place / f"wikitext2.{chance.choice(['train', 'test', 'validation'])}.jsonl"
            split.write_text(
                split.read_text() + chance.choice(_rows()) + "\n", encoding="utf-8", errors="surrogatepass"
            )
            yield ["run", *bases["run"], "--data-dir", str(place), "--data-dir", str(world.data)]
        elif kind == "results":
            shutil.copy(world.root / "results_1.json", place)
            _change(place, chance)
            yield ["leaderboard", "import", str(place), "--leaderboard", f"{place}-board", "--runs", f"{place}-runs"]
        else:
            folder = place / chance.choice(entries).parent.name
            folder.mkdir(parents=True)
            plain = json.loads(chance.choice(entries).read_text())
            _set(plain, chance)
            with contextlib.suppress(ValueError, TypeError):
                from emobench.leaderboard.entry import entry_id

                plain["id"] = entry_id(plain)
            (folder / f"{plain.get('id')}.json"[-200:].replace("/", "_")).write_text(json.dumps(plain))
            verb = chance.choice(["show", "verify", "export"])
            yield ["leaderboard", verb, "--leaderboard", str(place)]


def _rows() -> list[str]:
    long = ['{"text": ' + "9" * 10_000 + "}", '{"text": ' + "[" * DEEP, '{"text": ' + "[" * DEEP + "]" * DEEP + "}"]
    return [*long, *(json.dumps({"text": value}) for value in TYPES), json.dumps(ESCAPES), "\x00", ESCAPES]


def _change(path: Path, chance: random.Random) -> None:
    plain = json.loads(path.read_text())
    _set(plain, chance)
    path.write_text(json.dumps(plain))


def _set(plain: dict[str, Any], chance: random.Random) -> None:
    """Replace one value within a mapping, or the key of it."""
    inner: Any = plain
    while True:
        key = chance.choice(list(inner))
        if isinstance(inner[key], dict) and inner[key] and chance.random() < 0.8:
            inner = inner[key]
            continue
        value = inner.pop(key) if chance.random() < 0.1 else chance.choice(TYPES)
        inner[ESCAPES if key not in inner else key] = value
        return


def ends(words: list[str], out: Path) -> str:
    """Run a command in a fork of this process, and return how it ended."""
    child = os.fork()
    if child == 0:
        with out.open("wb") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.alarm(SECONDS)
        os._exit(_command(words))
    _, status = os.waitpid(child, 0)
    said = out.read_text(errors="surrogateescape")
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else "killed"
    if os.WEXITSTATUS(status) == 99 or "Traceback (most recent call last)" in said:
        return "traceback"
    if any(not c.isprintable() and c not in "\n\t" for c in said if not c.isspace()) or "\r" in said:
        return "escape"
    return f"exit {os.WEXITSTATUS(status)}"


def _command(words: list[str]) -> int:
    from emobench import cli

    sys.argv = ["emobench", *words]
    code: Any = 0
    try:
        cli.main()
    except SystemExit as stopped:
        code = stopped.code or 0
    except BaseException:
        traceback.print_exc()
        code = 99
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return code if isinstance(code, int) else 1


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="Begin no case after this time.")
    parser.add_argument("--out", type=Path, default=RESULTS / "faults" / "hostile.json")
    given = parser.parse_args(argv)
    given.out = given.out.absolute()
    chance = random.Random(given.seed)
    os.environ |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        os.chdir(world.root)
        bases = world.bases()
        run = [word for word in bases["run"] if word != "--dry-run"] + ["--objective", "pretrained", "--quiet"]
        import transformers  # noqa: F401, what every case would import anew

        import emobench.runs.dry_run
        import emobench.runs.run  # noqa: F401

        out = world.root / "out"
        made = ends(["run", *run], out)
        assert made == "exit 0", out.read_text()
        drawn = [*options(bases), *settings(bases["run"])]
        drawn = chance.sample(drawn, min(len(drawn), given.cases * 3 // 4))
        drawn += files(world, bases, given.cases - len(drawn), chance)
        chance.shuffle(drawn)
        counted: Counter[str] = Counter()
        began = time.monotonic()
        for words in drawn:
            if time.monotonic() - began > given.seconds:
                break
            # A null character ends an argument, and an argument of a megabyte is none: the system refuses both.
            how = ends([word.replace("\x00", "") for word in words], out)
            counted[how] += 1
            if not how.startswith("exit"):
                shown = [word if len(word) < 80 else f"{word[:60]}...{len(word)}" for word in words]
                print(how, ascii(shown[:2] + shown[-4:]), flush=True)
                print("   ", ascii(out.read_text(errors="replace")[-300:]), flush=True)
        ends_of = dict(sorted(counted.items()))
        print(f"{counted.total()} cases: {ends_of}")
        write({**origin(__file__, argv, "cpu"), "cases": counted.total(), "ends": ends_of}, given.out)
        sys.exit(any(not how.startswith("exit") for how in counted))


if __name__ == "__main__":
    main(sys.argv[1:])
