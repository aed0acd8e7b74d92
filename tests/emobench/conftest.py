"""A small model and small corpora, on which the real pipeline runs in seconds, the real command line, and entries."""

from __future__ import annotations

import io
import json
import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import numpy as np

    from emobench.leaderboard.entry import Entry
    from emobench.tasks.scores import Score

sys.path.insert(0, str(Path(__file__).parent))  # for `shown`: the folder of tests has no __init__.py

# As the command line does for itself, before torch is imported: threads that spin while they wait make small models
# many times slower where another process uses a core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

WORDS = [f"{a}{b}" for a in ("ba", "de", "ki", "lo", "mu", "na", "po", "ti") for b in ("r", "s", "n", "l", "m")]
CONTEXT = 48
CLASSES = {"sst2": ("negative", "positive"), "trec": ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")}


@dataclass(frozen=True)
class Finished:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def ok(self) -> Finished:
        """Return this, which must have succeeded."""
        assert self.code == 0, self.err
        return self

    def refused(self, *texts: object) -> None:
        """Assert that this is a user's error: exit code 2, and a sentence on stderr alone, which holds `texts`."""
        assert (self.code, self.out) == (2, ""), (self.code, self.out[-500:], self.err[-500:])
        assert self.err.startswith("error: "), self.err[:500]
        assert self.err.count("\n") == 1, self.err[:500]
        assert len(self.err) < 2000, self.err[:500]
        for text in texts:
            assert str(text) in self.err, self.err


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three splits of two corpora: each word is likely to be followed by its neighbours.

    A row is a document.
    """
    folder = tmp_path_factory.mktemp("data")
    generator = random.Random(0)
    for corpus in ("wikitext2", "other"):
        for split, count in (("train", 90), ("validation", 20), ("test", 40)):
            with (folder / f"{corpus}.{split}.jsonl").open("w") as file:
                for row in range(count):
                    file.write(json.dumps({"text": _text(generator), "document": row}) + "\n")
    return folder


def _text(generator: random.Random) -> str:
    place, words = generator.randrange(len(WORDS)), []
    for _ in range(generator.randrange(20, 30)):
        place = (place + generator.choice([1, 1, 1, 2, 3, 7])) % len(WORDS)
        words.append(WORDS[place])
    return " ".join(words)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Path:
    """A GPT-2 of one layer with random weights and a word tokenizer trained on the small corpora, as a folder."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.trainers import WordLevelTrainer
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "small"
    tokenizer = Tokenizer(WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    texts = [json.loads(line)["text"] for line in (small_data / "wikitext2.train.jsonl").read_text().splitlines()]
    tokenizer.train_from_iterator(texts, WordLevelTrainer(special_tokens=["<unk>", "<eos>"], show_progress=False))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<eos>", eos_token="<eos>", model_max_length=CONTEXT
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": CONTEXT, "n_embd": 16, "n_layer": 1, "n_head": 2}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(fast), bos_token_id=1, eos_token_id=1, **sizes))
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of one layer with random weights, and a tokenizer of bytes, which reads any label."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "bytes"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({**{c: i for i, c in enumerate(alphabet)}, "<eos>": 256}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<eos>", eos_token="<eos>")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"n_positions": 1024, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.3}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=257, bos_token_id=256, eos_token_id=256, **sizes))
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two labelled data sets, whose texts say their class by a word."""
    folder, generator = tmp_path_factory.mktemp("labelled"), random.Random(0)
    for name, classes in CLASSES.items():
        for split, count in (("train", 40), ("test", 30)):
            with (folder / f"{name}.{split}.jsonl").open("w") as file:
                for _ in range(count):
                    label = generator.randrange(len(classes))
                    words = [f"w{generator.randrange(20)}" for _ in range(4)]
                    text = " ".join([*words, f"class{label}"])
                    file.write(json.dumps({"text": text, "label": label, "label_name": classes[label]}) + "\n")
    return folder


@pytest.fixture(scope="session")
def command() -> Iterator[Callable[..., Finished]]:
    """What runs `emobench ARGUMENTS` through its entry point, in this process."""
    from emobench import cli

    def run(*arguments: object) -> Finished:
        out, err = io.StringIO(), io.StringIO()
        code: Any = 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr("sys.argv", ["emobench", *map(str, arguments)])
            try:
                cli.main()
            except SystemExit as stopped:
                code = stopped.code or 0
        return Finished(code, out.getvalue(), err.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        # What the command line sets for its own process ends with the tests.
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("OMP_WAIT_POLICY", "passive")
        patch.setenv("COLUMNS", "300")
        yield run


@pytest.fixture
def fields() -> dict[str, Any]:
    """All plain fields of a measured entry without scores, but `schema` and `id`."""
    return _fields()


@pytest.fixture(scope="session")
def entry_of() -> Callable[..., Entry]:
    """Return a function that makes a measured entry of an objective from the fields in which it differs from `fields`.

    Unless given, its protocols are of the tasks, and its seeds of the values, that its plain metrics have.
    """
    from emobench.leaderboard.entry import new_entry

    return lambda name="emo", **changes: new_entry(_fields(name, **changes))


def _fields(name: str = "emo", *, created: str = "2026-01-31T12:00:00", **changes: Any) -> dict[str, Any]:
    metrics, missing = changes.get("metrics", {}), changes.get("missing", {})
    values = max((len(metric["values"]) for metric in metrics.values()), default=1)
    untrained = name == "pretrained"
    return {
        "kind": "measured",
        "supersedes": None,
        "suite": {"name": "nlu", "version": 1},
        "protocols": {key.partition("/")[0]: "paper@1" for key in (*metrics, *missing)},
        "model": {"name": "tiny", "source": "tiny"},
        "objective": {"name": name, "version": "1", "params": {}},
        "recipe": {} if untrained else {"name": "lm"},
        "seeds": [] if untrained else list(range(values)),
        "metrics": {},
        "missing": {},
        "runs": [],
        "cost": {},
        "source": {},
        "provenance": {"commit": None, "packages": {}, "hardware": None, "data": {}, "created": created},
        **changes,
    }


MakeEntry = Callable[..., "Entry"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder of per-example results of an entry."""
    return tmp_path / "runs"


@pytest.fixture
def make_entry(runs: Path, entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of one task's accuracies and writes its per-example results."""

    def make(
        name: str,
        tasks: Mapping[str, np.ndarray],
        /,
        *,
        seeds: Sequence[int] = (0, 1, 2),
        metric: str = "accuracy",
        unit: str = "fraction",
        corpus: bool = False,
        **changes: Any,
    ) -> Entry:
        from emobench.core.settings import to_plain
        from emobench.leaderboard.run_files import write_examples
        from emobench.leaderboard.stats.summary import summarise

        by_seed = [
            {f"{task}/{metric}": _score(values_SI[index], unit, corpus) for task, values_SI in tasks.items()}
            for index in range(max(len(seeds), 1))
        ]
        kept = []
        for index, scores in enumerate(by_seed):
            path = f"{name}-{index}-{len(list(runs.glob('*')))}/examples.jsonl"
            digest = write_examples(runs / path, scores)
            seed = seeds[index] if seeds else None
            kept.append(
                {"seed": seed, "key": f"{name}-{seed}-{digest[:8]}", "examples": {"path": path, "sha256": digest}}
            )
        metrics = {key: to_plain(summarise([scores[key] for scores in by_seed])) for key in by_seed[0]}
        return entry_of(name, **{"seeds": list(seeds), "metrics": metrics, "runs": kept, **changes})

    return make


@pytest.fixture(scope="session")
def make_row(entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of each seed's scores, by <task>/<metric>, which are of no sample (n = 1).

    A metric's name says what it is: accuracy and mauve are fractions, ppl is a perplexity, lower kl is better, and
    entropy has no direction.
    """
    units = {"ppl": ("perplexity", False), "kl": ("nats", False), "entropy": ("nats", None)}

    def make(name: str, scores: Mapping[str, Sequence[float]], /, **changes: Any) -> Entry:
        from emobench.core.settings import to_plain
        from emobench.leaderboard.stats.summary import summarise
        from emobench.tasks.scores import Score

        metrics = {}
        for metric, values in scores.items():
            unit, better = units.get(metric.split("/")[1], ("fraction", True))
            made = [Score(value=v, n=1, higher_is_better=better, unit=unit, aggregate="corpus") for v in values]
            metrics[metric] = to_plain(summarise(made))
        return entry_of(name, **{"metrics": metrics, **changes})

    return make


def _score(values_I: np.ndarray, unit: str, corpus: bool) -> Score:
    from emobench.tasks.scores import Score

    log = unit == "perplexity"
    aggregate = "corpus" if corpus else "exp_mean" if log else "mean"
    mean = float(values_I.mean())
    return Score(
        value=math.exp(mean) if log else mean,
        n=len(values_I),
        higher_is_better=not log,
        unit=unit,
        examples=None if corpus else {str(i): (float(v), 1.0) for i, v in enumerate(values_I)},
        aggregate=aggregate,
    )
