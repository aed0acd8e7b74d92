"""Addresses that an entry names: of its paper, its data and its model. A page links them, and loads none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

from emobench.leaderboard.entry import Entry

ARXIV = re.compile(r"\barXiv[: ]\s?(\d{4}\.\d{4,5})", re.IGNORECASE)
DOI = re.compile(r"\b(?:doi[: ]\s?)?(10\.\d{4,9}/[\w./()-]+\w)")
ADDRESS = re.compile(r"https://[\w.-]+\.[a-z]{2,}(?:/[\w./%~+-]*\w/?)?")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
DATA_SOURCE = re.compile(r"\((?:hub: )?([\w.-]+/[\w.-]+)@([0-9a-f]{40})\b")
HUB = "https://huggingface.co"


def links(entry: Entry) -> list[tuple[str, str]]:
    """Return (text, address) of what an entry names so that it can be found: each address once."""
    return [(text, address) for address, text in dict(reversed([(a, t) for t, a in _links(entry)])).items()][::-1]


def _links(entry: Entry) -> Iterator[tuple[str, str]]:
    cite = entry.source.cite or ""
    for number in ARXIV.findall(cite):
        yield f"Paper: arXiv {number}", f"https://arxiv.org/abs/{number}"
    for address in ADDRESS.findall(cite):
        yield address.removeprefix("https://"), address
    for name in DOI.findall(ADDRESS.sub("", cite)):
        yield f"Paper: doi {name}", f"https://doi.org/{quote(name)}"
    model, revision = entry.model.source, entry.model.revision or ""
    if HUB_ID.fullmatch(model) and COMMIT.fullmatch(revision):
        yield f"Model: {model}", f"{HUB}/{quote(model)}/tree/{revision}"
    for source in entry.provenance.data.values():
        for repository, commit in DATA_SOURCE.findall(source):
            yield f"Data: {repository}", f"{HUB}/datasets/{quote(repository)}/tree/{commit}"
