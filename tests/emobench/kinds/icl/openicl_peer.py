"""OpenICL itself (0.1.8): its TopkRetriever, its PPLInferencer and its prompt template, on transformers 5."""

from __future__ import annotations

import copy
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from emobench.data.labelled import LabelledData
from emobench.kinds.icl.prompts import Draft
from emobench.kinds.icl.retrieval.shots import pool_of, questions_of, search_keys
from emobench.kinds.icl.rules import IclProtocol

IMPORTED = ("openicl", "evaluate", "nltk", "openai", "rank_bm25", "requests", "sklearn")
"""OpenICL, and what it imports besides this project's own dependencies."""


@contextmanager
def adapted_openicl() -> Iterator[Any]:
    """Give the package `openicl`, made to run on transformers 5, without its bars.

    1. DatasetEncoder calls `tokenizer.encode_plus`, which transformers 5 has no more.
    2. BatchEncoding.to passes `non_blocking`, which OpenICL's ListWrapper.to does not take.
    """
    levels = [(handler, handler.level) for handler in logging.root.handlers]
    with warnings.catch_warnings(action="ignore", category=FutureWarning), redirect_stderr(StringIO()):
        import openicl
        from openicl.utils import collators
        from transformers import PreTrainedTokenizerBase

        encode = patch.object(PreTrainedTokenizerBase, "encode_plus", _encode_plus, create=True)
        with encode, patch.object(collators.ListWrapper, "to", lambda wrapper, *_, **__: wrapper.data):
            yield openicl
    for handler, level in levels:  # OpenICL sets them when it is imported
        handler.setLevel(level)


def _encode_plus(tokenizer: Any, text: str, *, verbose: bool = True, **settings: Any) -> Any:
    return tokenizer(text, **settings)


def bytes_tokenizer() -> Any:
    """Return a tokenizer of single bytes, which gives every text back: TopkRetriever passes its texts through one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    end = "<|endoftext|>"
    vocabulary = {token: place for place, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), end])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end)


def topk_retriever(rules: IclProtocol, data: LabelledData, encoder: Path) -> Any:
    """Return OpenICL's TopkRetriever, which embeds the pool; inside of `adapted_openicl` only.

    Its `retrieve()` returns, for each test example, the places of its shots in the pool.
    """
    from datasets import Dataset, DatasetDict
    from openicl import DatasetReader, TopkRetriever

    splits = {}
    for split, examples in (("train", pool_of(rules, data)), ("test", questions_of(rules, data))):
        texts = [text for _, text in search_keys(rules, examples)]
        splits[split] = Dataset.from_dict({"text": texts, "class": [example.label for example in examples]})
    reader = DatasetReader(DatasetDict(splits), input_columns=["text"], output_column="class")
    with tempfile.TemporaryDirectory() as folder:
        bytes_tokenizer().save_pretrained(folder)
        return TopkRetriever(
            reader, sentence_transformers_model_name=str(encoder), tokenizer_name=folder, ice_num=rules.shots
        )


class Scored(NamedTuple):
    """What OpenICL says of one test example."""

    perplexities: tuple[float, ...]
    """Of each label, in the order of the protocol's `ties`; it calls the mean nats per token so."""
    prompts: tuple[str, ...]
    answer: str


class Peer:
    """OpenICL with everything loaded; `run` is its `inference`, from shots and texts to a file of perplexities."""

    def __init__(
        self, model: Any, tokenizer: Any, rules: IclProtocol, drafts: Sequence[Draft], folder: Path, *, batch: int = 8
    ) -> None:
        from datasets import Dataset, DatasetDict

        with adapted_openicl() as openicl:
            from openicl import BaseRetriever, DatasetReader, PPLInferencer
        pool = [shot for draft in drafts for shot in draft.shots]
        splits = {"train": pool or [drafts[0].example], "test": [draft.example for draft in drafts]}
        rows = {}
        for name, examples in splits.items():
            rows[name] = Dataset.from_list([{"text": e.fields["text"], "class": e.label} for e in examples])
        reader = DatasetReader(DatasetDict(rows), input_columns=["text"], output_column="class")
        counts = [len(draft.shots) for draft in drafts]
        places = [list(range(sum(counts[:i]), sum(counts[: i + 1]))) for i in range(len(counts))]

        class Given(BaseRetriever):
            def retrieve(self) -> list[list[int]]:
                return [list(row) for row in places]

            def generate_ice(self, idx_list: list[int], ice_template: Any = None) -> str:
                # As its ZeroRetriever: no separator where there is no shot.
                return super().generate_ice(idx_list, ice_template) if idx_list else ""

        self.retriever = Given(reader, ice_separator=rules.separator, ice_eos_token=rules.separator)
        self.labels = rules.ties
        texts = {name: "</E>" + rules.template.replace("{label}", rules.labels[name]) for name in rules.ties}
        self.template = openicl.PromptTemplate(
            {name: text.replace("{text}", "<X>") for name, text in texts.items()}, {"text": "<X>"}, ice_token="</E>"
        )
        self._folder = folder
        self.inferencer = PPLInferencer(
            model_name=model,
            tokenizer_name=copy.deepcopy(tokenizer),  # it sets the padding
            batch_size=batch,
            output_json_filepath=str(folder),
            output_json_filename="out",
        )

    def run(self) -> None:
        """Score everything, as OpenICL does it."""
        with adapted_openicl():
            self.inferencer.inference(self.retriever, self.template)

    def results(self) -> list[Scored]:
        """Return what the last run wrote."""
        output = json.loads((self._folder / "out.json").read_text(encoding="utf-8"))
        rows = []
        for place in range(len(output)):
            labels = [output[str(place)][f"label: {name}"] for name in self.labels]
            perplexities, prompts = tuple(one["PPL"] for one in labels), tuple(one["prompt"] for one in labels)
            rows.append(Scored(perplexities, prompts, output[str(place)]["prediction"]))
        return rows


def openicl_scores(model: Any, tokenizer: Any, rules: IclProtocol, drafts: Sequence[Draft]) -> list[Scored]:
    """Return OpenICL's perplexities and answers; fields are `text` alone, shots in the order given."""
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(model, tokenizer, rules, drafts, Path(folder))
        peer.run()
        return peer.results()
