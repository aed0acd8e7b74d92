"""A small model and small corpora, on which the real pipeline runs in seconds, the real command line, and entries."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emobench.leaderboard.schema.entry import Entry

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
    from emobench.leaderboard.schema.entry import new_entry

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
