"""The engine `openicl`: OpenICL itself (Wu et al., 2023, which the EMO paper used) finds the shots and scores.

Its TopkRetriever finds the shots where the retriever is `dense`; others are found as for every engine. Its
PPLInferencer scores on the loaded model. Where this differs from the original: the model is float32, as transformers 4
loaded it whatever the folder held; the retriever's texts pass through a tokenizer that gives every text back, after
the protocol's `query_text`; and prompts that are too long lose shots beforehand, unless the protocol has OpenICL's own
rule (`too_long: cut_right`).
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from emobench.core.errors import ConfigError, DataError, ModelError
from emobench.core.settings import parse_call
from emobench.data.labelled import Example, LabelledData
from emobench.inference.scoring.scorer import context_of
from emobench.kinds.icl.examples import pool_of, query_texts, questions_of
from emobench.kinds.icl.losses import ExampleLosses, write_samples
from emobench.kinds.icl.openicl_shims import adapted_openicl, require_openicl
from emobench.kinds.icl.prompts import Draft, ExamplePrompts, room
from emobench.kinds.icl.retrieval.shots import find_shots, kept_shots
from emobench.kinds.icl.rules import FIELD, LABEL, IclProtocol, fill
from emobench.kinds.interface import Subject
from emobench.tasks.spec import Task

SAMPLES, OUTPUT = "samples.jsonl", "openicl"
"""OpenICL's own results, openicl.json, are in the folder of the samples."""
NO_LIMIT = 10**30
"""transformers' own number for it: OpenICL has nothing to cut off."""
BATCH = 8
"""Prompts at a time: the official code's."""
LOGITS = 2**19
"""Prompts times vocabulary at most: OpenICL holds the logits of all tokens several times, and Gemma's vocabulary of
262,144 would take some 25 GB for 8 prompts of AG News."""
SHOTS_HERE, QUERY, CLASS = "</E>", "query", "class"
CAN = {"scorer": "prompt", "header": "", "order": "nearest-first", "bos": "tokenizer", "exclude_duplicates": False}
"""Rules that OpenICL has one value for."""


def check_openicl(task: Task) -> None:
    """Raise ConfigError for a rule that OpenICL does not have, or if it is not installed."""
    rules = task.protocol_as(IclProtocol)
    for name, value in CAN.items():
        if getattr(rules, name) != value:
            given = json.dumps(getattr(rules, name))
            raise ConfigError(
                f"Task {task.name}: OpenICL does not know icl.{name}={given}, only {json.dumps(value)}; use --set "
                "icl.engine=auto."
            )
    if task.dataset is not None and task.dataset.group:
        raise ConfigError(
            f"Task {task.name}: OpenICL has one pool for all examples, and this task has one for each "
            f"{task.dataset.group}; use --set icl.engine=auto."
        )
    require_openicl()


def openicl_shots(subject: Subject, task: Task, data: LabelledData) -> list[tuple[Example, ...]]:
    """Return each test example's shots, nearest first: by OpenICL's TopkRetriever in place of `dense`."""
    rules = task.protocol_as(IclProtocol)
    if rules.shots == 0 or parse_call(rules.retriever)[0] != "dense":
        return find_shots(subject, task, data)
    encoder = subject.sentence_encoder(rules.encoder)
    names = ("openicl", "faiss-cpu", "sentence-transformers", "transformers", "torch")
    facts = {
        "retriever": "TopkRetriever",
        "encoder": encoder.identity,
        "packages": {name: version(name) for name in names},
    }

    def find() -> list[list[int]]:
        with subject.work(f"embed {task.name} with OpenICL", "texts") as progress, adapted_openicl(progress):
            return topk_retriever(openicl_reader(rules, data), encoder.folder, rules.shots).retrieve()

    return kept_shots(subject, rules, data, facts, find)


def run_openicl(
    subject: Subject,
    task: Task,
    data: LabelledData,
    drafts: Sequence[Draft],
    prompts: Sequence[ExamplePrompts],
    folder: Path,
) -> None:
    """Write each example's losses to `folder`; `prompts` are those of `drafts` with the shots that fit.

    OpenICL writes when it has finished, so that an interrupted attempt begins again.
    """
    rules, eos = task.protocol_as(IclProtocol), subject.tokenizer.eos_token_id
    if eos is None:
        raise ModelError(
            f"Task {task.name}: OpenICL pads with the EOS token, and this tokenizer has none; use "
            "--set icl.engine=auto."
        )
    places = {example.id: place for place, example in enumerate(pool_of(rules, data))}
    shots = [[places[shot] for shot in prompt.shots] for prompt in prompts]
    losses = _losses(subject, task, openicl_reader(rules, data), shots, folder)
    rows = [_sample(rules, *row, eos) for row in zip(drafts, prompts, losses, strict=True)]
    write_samples(folder / SAMPLES, rows)


def openicl_reader(rules: IclProtocol, data: LabelledData) -> Any:
    """Return OpenICL's view of the data: the query text is its one input column."""

    def split(examples: Sequence[Example]) -> Dataset:
        rows = []
        for example, text in zip(examples, query_texts(rules, examples), strict=True):
            row = {f"field {name}": value for name, value in example.fields.items()}
            rows.append(row | {QUERY: text, CLASS: example.label})
        return Dataset.from_list(rows)

    splits = DatasetDict([("train", split(pool_of(rules, data))), ("test", split(questions_of(rules, data)))])
    with adapted_openicl() as openicl:
        return openicl.DatasetReader(splits, input_columns=[QUERY], output_column=CLASS)


def topk_retriever(reader: Any, encoder: Path, count: int) -> Any:
    """Return OpenICL's TopkRetriever, which embeds the reader's train split; inside of `adapted_openicl` only.

    Its `retrieve()` embeds the test split and returns, for each example, the places of its shots in the train split.
    """
    from openicl import TopkRetriever

    with tempfile.TemporaryDirectory() as folder:
        _bytes_tokenizer().save_pretrained(folder)
        return TopkRetriever(
            reader, sentence_transformers_model_name=str(encoder), tokenizer_name=folder, ice_num=count
        )


def _losses(
    subject: Subject, task: Task, reader: Any, shots: Sequence[Sequence[int]], folder: Path
) -> list[Mapping[str, Any]]:
    """Return what OpenICL's PPLInferencer writes for each test example."""
    rules, model = task.protocol_as(IclProtocol), subject.model
    device = model.device
    if any(weight.dtype.itemsize < 4 for weight in model.parameters()):
        model = copy.deepcopy(model).float()
    with (
        subject.work(f"score {task.name} with OpenICL", "batches of a label") as work,
        adapted_openicl(work) as openicl,
    ):

        class Given(openicl.BaseRetriever):
            def retrieve(self) -> list[list[int]]:
                return [list(row) for row in shots]

            def generate_ice(self, idx_list: list[int], ice_template: Any = None) -> str:
                # As its ZeroRetriever: no separator where there is no shot.
                return super().generate_ice(idx_list, ice_template) if idx_list else ""

        tokenizer = copy.deepcopy(subject.tokenizer)  # the inferencer sets its padding
        limit = room(rules, context_of(model)) if rules.too_long == "cut_right" else None
        tokenizer.model_max_length = NO_LIMIT if limit is None else limit
        rows = LOGITS // model.get_output_embeddings().weight.shape[0]
        inferencer = openicl.PPLInferencer(
            model_name=model,
            tokenizer_name=tokenizer,
            batch_size=max(1, min(BATCH, rows)),
            output_json_filepath=str(folder),
            output_json_filename=OUTPUT,
        )
        retriever = Given(reader, ice_separator=rules.separator, ice_eos_token=rules.separator)
        inferencer.inference(retriever, _template(openicl, rules))
    subject.model.to(device)  # it takes a GPU where it finds one
    output = json.loads((folder / f"{OUTPUT}.json").read_text(encoding="utf-8"))
    return [output[str(place)] for place in range(len(shots))]


def _template(openicl: Any, rules: IclProtocol) -> Any:
    tokens = {name: f"<{name}/>" for name in FIELD.findall(rules.template) if name != LABEL}
    columns = {f"field {name}": token for name, token in tokens.items()}
    texts = {}
    for key in rules.ties:
        texts[key] = SHOTS_HERE + fill(rules.template, {**tokens, LABEL: rules.labels[key]})
    return openicl.PromptTemplate(texts, columns, ice_token=SHOTS_HERE)


def _sample(
    rules: IclProtocol, draft: Draft, prompt: ExamplePrompts, output: Mapping[str, Any], eos: int | None
) -> ExampleLosses:
    labels = [output[f"label: {name}"] for name in rules.ties]
    fitted = replace(draft, shots=draft.shots[: len(prompt.shots)])
    if [label["prompt"] for label in labels] != [text for text, _ in fitted.texts(rules)]:
        raise DataError(
            f"Example {prompt.id}: OpenICL makes another prompt of it than the protocol, because a shot's text, or the "
            "template, holds <text/> or the like, which OpenICL replaces. Take it out, or use --set icl.engine=auto."
        )
    tokens = tuple(len(ids) - ids.count(eos) for ids in prompt.tokens)
    # OpenICL's PPL is the sum of a prompt's nats over its tokens; a sample keeps the sum.
    nats = tuple(label["PPL"] * count for label, count in zip(labels, tokens, strict=True))
    return ExampleLosses(
        id=prompt.id,
        label=draft.example.label,
        shots=prompt.shots,
        dropped=prompt.dropped,
        cut=prompt.cut,
        prompt_nats=nats,
        prompt_tokens=tokens,
    )


def _bytes_tokenizer() -> Any:
    """Return a tokenizer of single bytes, which gives every text back: TopkRetriever passes its texts through one."""
    end = "<|endoftext|>"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*alphabet, end])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end)
