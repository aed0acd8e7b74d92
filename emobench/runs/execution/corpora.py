"""Packed corpora: a split of a recipe's corpus as rows of tokens, made once for all trainings that read them.

    RUNS/corpus/<key>/   tokens.npy, labels.npy (where they differ from the tokens), offsets.npy, counts.json

The key holds the texts, the tokenizer and the rules of packing, and no model and no objective: another seed, another
objective and another size of model with the same tokenizer read the same files, which are mapped into memory.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.settings import code_sha256
from emobench.core.versions import minor_versions
from emobench.data import chat_templates, conversations, packing, responses
from emobench.data.conversations import FORMATS
from emobench.data.instruction_sets import Conversations
from emobench.data.packing import Packed, pack_blocks, pack_rows
from emobench.data.responses import Counts, ResponseRows, response_rows
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.planned import PlannedTraining
from emobench.runs.stages.stage import Stage, Stages

MOST_KEPT = 64
"""Corpora that stay open: each file that is mapped into memory holds a descriptor, and a sweep may have hundreds."""


class PackedCorpora:
    """Finds packed corpora, and makes those that are not there; without `keep`, in memory alone."""

    def __init__(self, stages: Stages, reporter: Reporter, *, keep: bool = True) -> None:
        self._stages = stages
        self._reporter = reporter
        self._keep = keep
        self._found: dict[str, Packed] = {}

    def rows(self, planned: PlannedTraining, split: str) -> Packed:
        """Return a split of the recipe's corpus as rows of tokens. Raises DataError if there are none."""
        stage = corpus_stage(planned, split)
        if stage.key not in self._found:
            if len(self._found) >= MOST_KEPT:
                del self._found[next(iter(self._found))]
            self._found[stage.key] = self._find(stage, planned, split)
        found, limit = self._found[stage.key], planned.recipe.max_tokens
        return found if limit is None or split != "train" else found.first(limit)

    def _find(self, stage: Stage, planned: PlannedTraining, split: str) -> Packed:
        make = partial(self._pack, planned, split)
        if not self._keep and not self._stages.is_finished(stage):
            return make()
        folder = self._stages.make(stage, lambda folder: make().save(folder))
        return Packed.load(folder) if planned.recipe.template == "none" else ResponseRows.load(folder)

    def _pack(self, planned: PlannedTraining, split: str) -> Packed:
        texts = planned.texts[split]
        try:
            with self._reporter.work(f"tokenize {texts.corpus} {split}", "texts") as progress:
                return self._packed(planned, split, progress)
        except DataError as error:
            raise DataError(f"{texts.corpus}, {split} ({texts.origin}): {error}") from None

    def _packed(self, planned: PlannedTraining, split: str, progress: packing.Progress) -> Packed:
        recipe, texts, model = planned.recipe, planned.texts[split], planned.model
        if isinstance(texts, Conversations):
            return self._responses(texts, planned, progress)
        common: dict[str, Any] = {"length": recipe.max_length, "context": model.context, "progress": progress}
        if recipe.packing == "blocks":
            return pack_blocks(texts.texts, model.tokenizer, eos_between=recipe.ends, **common)
        common |= {"bos": recipe.ends, "eos": recipe.ends, "mask_until": recipe.mask_until or None}
        return pack_rows(texts.texts, model.tokenizer, **common)

    def _responses(self, given: Conversations, planned: PlannedTraining, progress: packing.Progress) -> ResponseRows:
        recipe = planned.recipe
        found = response_rows(
            given,
            FORMATS[recipe.template](planned.model.tokenizer),
            responses=recipe.responses,
            length=recipe.max_length,
            packed=recipe.packing == "conversations",
            progress=progress,
        )
        if found.counts != Counts(whole=found.counts.whole):
            self._reporter.note(f"  {given.corpus} {given.split}, at {recipe.max_length} tokens: {found.counts}")
        return found


def corpus_stage(planned: PlannedTraining, split: str) -> Stage:
    """Return the stage of a packed corpus: all of it, of which `max_tokens` takes the first rows."""
    recipe = planned.recipe
    chats = recipe.template != "none"
    rules = ("template", "responses") if chats else ("ends", "mask_until")
    modules = (packing, chat_templates, conversations, responses) if chats else (packing,)
    files = [str(Path(str(module.__file__))) for module in modules]
    if chats:
        files.append(str(chat_templates.SCRIPT))  # not imported: it imports jinja2
    facts = {
        "texts": planned.texts[split].fingerprint,
        "tokenizer": planned.model.tokenizer_facts,
        "rules": {name: getattr(recipe, name) for name in ("packing", "max_length", *rules)},
        "source": code_sha256(files),
        "packages": minor_versions("tokenizers", "transformers"),
    }
    if chats:  # what a tokenizer's own definition does not say
        tokenizer = planned.model.tokenizer
        template = tokenizer.chat_template if recipe.template == "chat" else None
        special = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
        facts["ends"] = [template, tokenizer("")["input_ids"], tokenizer.eos_token_id, special]
    return Stage("corpus", facts)
