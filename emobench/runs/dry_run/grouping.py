"""The lines of a dry run as a table shows them: one for a row's seeds or swept values, and one for small downloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from emobench.runs.dry_run.outline import (
    DONE,
    TO_DO,
    Outline,
    StageLine,
    evaluation_words,
    run_words,
    tokens_words,
    training_words,
)
from emobench.runs.planning.estimate import gigabytes

SMALL = 5e7
"""Bytes of a download that gets no line of its own."""
ONE_PARAMETER = re.compile(r"(?P<name>[\w.-]+)\((?P<parameter>\w+)=(?P<value>[^,()]*)\)")


def grouped(outline: Outline) -> list[StageLine]:
    """Return fewer lines with the same sums; in an outline of several models the tasks of a row are one line too."""
    groups: dict[tuple[str, ...], list[StageLine]] = {}
    for line in outline.lines:
        groups.setdefault(_key(line, outline.several), []).append(line)
    return [lines[0] if len(lines) == 1 else GROUPED[lines[0].stage](lines) for lines in groups.values()]


def _key(line: StageLine, several: bool) -> tuple[str, ...]:
    """Return what the lines of a group share."""
    if line.stage in ("download", "missing"):
        small = line.group and line.download_bytes is not None and line.download_bytes < SMALL
        return (line.stage, "" if small else line.what)
    if line.stage == "embed":
        return (line.stage, line.group if several else line.what)
    if not line.objective:
        return (line.stage, line.what)
    objective = line.objective
    if several and (swept := ONE_PARAMETER.fullmatch(objective)):
        objective = f"{swept['name']}({swept['parameter']}"
    return (line.stage, line.subject, objective, "" if several and line.stage == "evaluate" else line.group)


def _downloads(lines: Sequence[StageLine]) -> StageLine:
    size = sum(line.download_bytes or 0 for line in lines)
    what = f"{len(lines)} small data sets and corpora: {', '.join(line.group for line in lines)}"
    amount = "under 0.05 GB in all" if size < SMALL else f"{gigabytes(size)} in all"
    return replace(lines[0], what=what, amount=amount, download_bytes=size)


def _embeddings(lines: Sequence[StageLine]) -> StageLine:
    summed = _summed(lines)
    return replace(summed, what=lines[0].group, amount=f"{len(lines)} tasks{tokens_words(summed.tokens)}")


def _runs(lines: Sequence[StageLine]) -> StageLine:
    """Return one line for the seeds, the swept values and the tasks of a row."""
    summed, first, tasks = _summed(lines), lines[0], list(dict.fromkeys(line.group for line in lines))
    seeds, tokens = list(dict.fromkeys(line.seed for line in lines)), summed.tokens
    objective = _swept(list(dict.fromkeys(line.objective for line in lines)))
    of = first.group if len(tasks) == 1 else ""
    what = run_words(first.subject, objective, f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds", of)
    if first.stage == "train":
        about = any(line.amount.startswith("~") for line in lines)
        amount = first.amount if tokens is None else training_words(summed, about)
    elif len(tasks) == 1:
        amount = evaluation_words(summed)
    else:
        count = f"{len(tasks)} tasks" if len(tasks) == len(lines) else f"{len(lines)} evaluations"
        amount = f"{count}{tokens_words(tokens)}"
    return replace(summed, what=what, amount=amount)


def _summed(lines: Sequence[StageLine]) -> StageLine:
    """Return the first line with the sums of several, of what is known: the time is of what is to do."""

    def total(name: str, of: Sequence[StageLine] = lines) -> int | None:
        known = [value for line in of if (value := getattr(line, name)) is not None]
        return sum(known) if known else None

    left = [line for line in lines if line.state != DONE]
    done = len(lines) - len(left)
    return replace(
        lines[0],
        state=DONE if not left else f"{done} of {len(lines)} {DONE}" if done else TO_DO,
        tokens=total("tokens"),
        steps=total("steps"),
        steps_at_rate_0=total("steps_at_rate_0"),
        examples=total("examples"),
        requests=total("requests"),
        request_tokens=total("request_tokens"),
        seconds=total("seconds", left),
        memory_bytes=max((line.memory_bytes or 0 for line in lines), default=0) or None,
    )


def _swept(objectives: Sequence[str]) -> str:
    """Return objectives that differ in the value of one parameter as one, with its values."""
    matches = [ONE_PARAMETER.fullmatch(text) for text in objectives]
    first = matches[0]
    if len(objectives) == 1 or first is None:
        return objectives[0]
    values = "|".join(match["value"] for match in matches if match is not None)
    return f"{first['name']}({first['parameter']}={values})"


GROUPED: dict[str, Callable[[Sequence[StageLine]], StageLine]] = {
    "download": _downloads,
    "missing": _downloads,
    "embed": _embeddings,
    "train": _runs,
    "evaluate": _runs,
}
