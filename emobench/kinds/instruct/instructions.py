"""Instructions with a reference response each, from a local file or from the repository of a known data set.

    {"instruction": ..., "input": ..., "reference": ...}      one JSON object a line; the input may be empty or absent

AlpacaEval's own rows, and the responses of assistants that it publishes, have the reference in `output`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emobench.core.errors import DataError, Missing, UnknownNameError
from emobench.data.conversations import Conversation, instruction_of
from emobench.data.labelled import row_key
from emobench.data.local_files import data_name, local_data
from emobench.data.rows import Row, digest, file_rows, hub_files, local_file, naming, require_count, rows_of


@dataclass(frozen=True)
class Source:
    """A JSON list of rows: a file of a data set's repository on the hub, or else one to be put into a data folder."""

    repo: str
    file: str
    rows: int
    hub: bool = True


# 805 instructions with text_davinci_003's responses; its loading script cannot be run, and its file is read as it is.
SOURCES: dict[str, Source] = {"alpaca_eval": Source("tatsu-lab/alpaca_eval", "alpaca_eval.json", 805)}
for _name in ("baize-v2-7b", "llama-2-7b-chat-hf", "vicuna-7b-v1.3", "zephyr-7b-alpha"):
    # The same instructions with the responses of one assistant each.
    _file = f"results/{_name}/model_outputs.json"
    SOURCES[_name] = Source("github.com/tatsu-lab/alpaca_eval", _file, 805, hub=False)


@dataclass(frozen=True)
class Instruction:
    """An instruction and a response to it."""

    id: str
    """First 12 hex digits of the sha256 of instruction and input, and the row: "9f86d081884c-17"."""
    asked: Conversation
    reference: str

    @property
    def text(self) -> str:
        """The instruction alone."""
        return self.asked.turns[0].text


@dataclass(frozen=True)
class Instructions:
    """The instructions of a split."""

    name: str
    rows: Sequence[Instruction]
    fingerprint: str
    """"sha256:<hex>" of their texts."""
    origin: str

    @property
    def provenance(self) -> Mapping[str, str]:
        """The record for entries: "instructions.test" -> "sha256:... (local: instructions.test.jsonl)"."""
        return {f"{self.name}.test": f"{self.fingerprint} ({self.origin})"}

    def __len__(self) -> int:
        return len(self.rows)


def load_instructions(name: str, *, data_dirs: Sequence[Path], offline: bool) -> Instructions:
    """Read `DIR/<name>.test.jsonl` of a data folder, local files by their path, or the file of a known repository.

    A single file by its path is read as a whole. Raises UnknownNameError for another name, DataError for rows that
    cannot be read.
    """
    local = local_file(name, "test", data_dirs)
    data = local_data(name)
    if local is not None:
        rows = list(file_rows(local))
        origin = f"local: {local.name}"
    elif data is not None:
        rows = list(data.rows("test" if data.splits["test"] else "train"))
        origin = f"local: {data.path.name}"
    elif name in SOURCES:
        rows, origin = _from_hub(name, SOURCES[name], offline)
    else:
        hint = f"A file is ./FILE, or DIR/{name}.test.jsonl with --data-dir DIR."
        raise UnknownNameError("set of instructions", name, SOURCES, hint=hint)
    if not rows:
        raise DataError(f"{name} (test, {origin}) has no instruction; expected at least one.")
    instructions = []
    texts = []
    for index, (where, row) in enumerate(rows):
        one = _instruction(row, where, index)
        instructions.append(one)
        texts += (one.text, one.asked.input, one.reference)
    return Instructions(data_name(name), instructions, digest(texts), origin)


def _from_hub(name: str, source: Source, offline: bool) -> tuple[list[tuple[str, Row]], str]:
    if not source.hub:
        how = f"Put {source.file} of {source.repo} in DIR/{name}.test.json and give --data-dir DIR."
        raise Missing(f"data set {name}", source.repo, None, how)
    with naming(f"data set {name}", source.repo, f"{name}.test.jsonl"):
        files, origin = hub_files(source.repo, "main", source.file, offline=offline)
        rows = list(rows_of(files, origin))
    require_count(origin, len(rows), source.rows)
    return rows, origin


def _instruction(row: Row, where: str, index: int) -> Instruction:
    asked = instruction_of(row, where)
    if not asked.turns[0].text.strip():
        raise DataError(f'{where}: "instruction" is blank; expected a task for the model.')
    reference = row.get("reference", row.get("output"))
    if not isinstance(reference, str) or not reference.strip():
        raise DataError(
            f'{where}: expected a response in "reference", which others are compared with; the fields are '
            f"{', '.join(row)}."
        )
    key = row_key([asked.turns[0].text, asked.input])
    return Instruction(f"{key}-{index}", asked, reference)
