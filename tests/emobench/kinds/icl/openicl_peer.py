"""OpenICL's own scoring of given shots: its PPLInferencer and its prompt template, nothing of this project's."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from emobench.kinds.icl.openicl_shims import adapted_openicl
from emobench.kinds.icl.prompts import Draft
from emobench.kinds.icl.rules import IclProtocol


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

        with adapted_openicl():
            from openicl import BaseRetriever, DatasetReader, PPLInferencer, PromptTemplate
        pool = [shot for draft in drafts for shot in draft.shots]
        splits = {"train": pool, "test": [draft.example for draft in drafts]}
        rows = {
            name: Dataset.from_list([{"text": e.fields["text"], "class": e.label} for e in examples])
            for name, examples in splits.items()
        }
        reader = DatasetReader(DatasetDict(rows), input_columns=["text"], output_column="class")
        counts = [len(draft.shots) for draft in drafts]
        places = [list(range(sum(counts[:i]), sum(counts[: i + 1]))) for i in range(len(counts))]

        class Given(BaseRetriever):
            def retrieve(self) -> list[list[int]]:
                return [list(row) for row in places]

        self.retriever = Given(reader)
        self.labels = rules.ties
        texts = {name: "</E>" + rules.template.replace("{label}", rules.labels[name]) for name in rules.ties}
        self.template = PromptTemplate(
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
        with adapted_openicl(), redirect_stderr(StringIO()):
            self.inferencer.inference(self.retriever, self.template)

    def results(self) -> list[Scored]:
        """Return what the last run wrote."""
        found = json.loads((self._folder / "out.json").read_text(encoding="utf-8"))
        rows = []
        for place in range(len(found)):
            labels = [found[str(place)][f"label: {name}"] for name in self.labels]
            rows.append(
                Scored(
                    tuple(label["PPL"] for label in labels),
                    tuple(label["prompt"] for label in labels),
                    found[str(place)]["prediction"],
                )
            )
        return rows


def openicl_scores(model: Any, tokenizer: Any, rules: IclProtocol, drafts: Sequence[Draft]) -> list[Scored]:
    """Return OpenICL's perplexities and answers; fields are `text` alone, shots in the order given."""
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(model, tokenizer, rules, drafts, Path(folder))
        peer.run()
        return peer.results()
