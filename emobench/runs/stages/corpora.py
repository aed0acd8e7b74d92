"""Packed corpora: a split of a recipe's corpus as rows of tokens, made once for all trainings that read them.

    RUNS/corpus/<key>/   tokens.npy, labels.npy (where they differ from the tokens), offsets.npy

The key holds the texts, the tokenizer and the rules of packing, and no model and no objective: another seed, another
objective and another size of model with the same tokenizer read the same files, which are mapped into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import DataError
from emobench.core.settings import code_sha256
from emobench.core.versions import minor_versions
from emobench.data import chat_templates, conversations, packing, responses
from emobench.data.conversations import FORMATS
from emobench.data.instruction_sets import Conversations
from emobench.data.packing import IGNORE, WEIGHTS, Counts, Packed, pack_blocks, pack_rows
from emobench.data.responses import response_rows
from emobench.data.texts import Texts
from emobench.models.model import Model
from emobench.runs.execution.reporter import Reporter
from emobench.runs.signals import interruptible
from emobench.runs.stages.stage import Stage, Stages
from emobench.training.recipe import Recipe

if TYPE_CHECKING:
    from emobench.runs.execution.execution import Execution

MOST_KEPT = 64
"""Corpora that stay open: each file that is mapped into memory holds a descriptor, and a sweep may have hundreds."""


@dataclass(frozen=True, eq=False)
class Corpus(Stage):
    """All packed rows of a split. A recipe's `max_tokens` or `validation_tokens` takes the first ones."""

    kind = "corpus"
    model: Model
    recipe: Recipe
    split: str
    texts: Texts

    @cached_property
    def facts(self) -> dict[str, Any]:
        recipe, tokenizer = self.recipe, self.model.tokenizer
        chats = recipe.template != "none"
        rules, modules = ("ends", "mask_until"), [packing]
        if chats:
            rules, modules = ("template", "responses"), [packing, chat_templates, conversations, responses]
        files = [str(Path(str(module.__file__))) for module in modules]
        if chats:
            files.append(str(chat_templates.SCRIPT))  # not imported: it imports jinja2
        facts = {
            "texts": self.texts.fingerprint,
            "tokenizer": self.model.tokenizer_identity,
            "rules": {name: getattr(recipe, name) for name in ("packing", "max_length", *rules)},
            "source": code_sha256(files),
            "packages": minor_versions("tokenizers", "transformers"),
        }
        if chats:  # a tokenizer's own definition leaves these out
            template = tokenizer.chat_template if recipe.template == "chat" else None
            special = {name: str(value) for name, value in tokenizer.special_tokens_map.items()}
            facts["ends"] = [template, tokenizer("")["input_ids"], tokenizer.eos_token_id, special]
        return facts

    def make(self, folder: Path, tools: Execution) -> None:
        self.pack(tools.reporter).save(folder)

    def pack(self, reporter: Reporter) -> Packed:
        """Return the rows. Raises DataError if there are none, or if all weights of their targets are 0."""
        rows = self._pack(reporter)
        weighted = rows.columns is not None and WEIGHTS in rows.column_names
        if weighted and not rows.columns[WEIGHTS][rows.labels != IGNORE].any():  # type: ignore[index]
            name = self.recipe.weights
            raise DataError(f'{self.texts.corpus}: every "{name}" of a target is 0, so that nothing would be trained.')
        return rows

    def _pack(self, reporter: Reporter) -> Packed:
        recipe, texts, tokenizer = self.recipe, self.texts, self.model.tokenizer
        try:
            with reporter.work(f"tokenize {texts.corpus} {self.split}", "texts") as shown:
                common: dict[str, Any] = {"length": recipe.max_length, "progress": interruptible(shown)}
                if isinstance(texts, Conversations):
                    packed = recipe.packing == "conversations"
                    form = FORMATS[recipe.template](tokenizer)
                    rows = response_rows(texts, form, responses=recipe.responses, packed=packed, **common)
                    if rows.counts is not None and rows.counts != Counts(whole=rows.counts.whole):
                        where = f"{texts.corpus} {texts.split}, at {recipe.max_length} tokens"
                        reporter.note(f"  {where}: {rows.counts}")
                    return rows
                if recipe.packing == "blocks":
                    return pack_blocks(texts.texts, tokenizer, eos_between=recipe.ends, **common)
                common |= {"ends": recipe.ends, "mask_until": recipe.mask_until, "numbers": texts.numbers}
                return pack_rows(texts.texts, tokenizer, **common)
        except DataError as error:
            raise DataError(f"{texts.corpus}, {self.split} ({texts.origin}): {error}") from None


class PackedCorpora:
    """Opens packed corpora, and makes those that are missing; without `keep`, in memory alone."""

    def __init__(self, stages: Stages, reporter: Reporter, *, keep: bool = True) -> None:
        self._stages = stages
        self._reporter = reporter
        self._keep = keep
        self._open: dict[str, Packed] = {}

    def rows(self, corpus: Corpus) -> Packed:
        """Return the rows that the recipe of a corpus takes. Raises DataError if there are none."""
        if corpus.key not in self._open:
            if len(self._open) >= MOST_KEPT:
                del self._open[next(iter(self._open))]
            self._open[corpus.key] = self._packed(corpus)
        packed, recipe = self._open[corpus.key], corpus.recipe
        limit = recipe.max_tokens if corpus.split == "train" else recipe.validation_tokens
        return packed if limit is None else packed.first(limit)

    def _packed(self, corpus: Corpus) -> Packed:
        if not self._keep and not self._stages.is_finished(corpus):
            return corpus.pack(self._reporter)
        return Packed.load(self._stages.make(corpus, lambda folder: corpus.pack(self._reporter).save(folder)))
