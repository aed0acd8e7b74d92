"""The lines of a dry run as a table shows them: one for a row's seeds or swept values, and one for small downloads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from emobench.pipeline.dry_run.outline import (
    DONE,
    TO_DO,
    Outline,
    StageLine,
    evaluation_words,
    run_words,
    tokens_words,
    training_words,
)
from emobench.pipeline.planning.estimate import duration, gigabytes

SMALL = 5e7
"""Bytes of a download that gets no line of its own."""
ONE_PARAMETER = re.compile(r"(?P<name>[\w.-]+)\((?P<parameter>\w+)=(?P<value>[^,()]*)\)")


def folded(outline: Outline) -> list[StageLine]:
    """Return fewer lines with the same sums; in an outline of several models the tasks of a row are one line too."""
    groups: dict[tuple[str, ...], list[StageLine]] = {}
    for line in outline.lines:
        groups.setdefault(_key(line, outline.several), []).append(line)
    return [lines[0] if len(lines) == 1 else FOLDS[lines[0].stage](lines) for lines in groups.values()]


def _key(line: StageLine, several: bool) -> tuple[str, ...]:
    """Return what the lines of a fold share."""
    if line.stage == "download":
        return (line.stage, "" if _is_small(line) else line.what)
    if line.stage == "embed":
        return (line.stage, line.group if several else line.what)
    if not line.objective:
        return (line.stage, line.what)
    objective = line.objective
    if several and (swept := ONE_PARAMETER.fullmatch(objective)):
        objective = f"{swept['name']}({swept['parameter']}"
    return (line.stage, line.subject, objective, "" if several and line.stage == "evaluate" else line.group)


def _is_small(line: StageLine) -> bool:
    return bool(line.group) and line.download_bytes is not None and line.download_bytes < SMALL


def _downloads(lines: Sequence[StageLine]) -> StageLine:
    size = sum(line.download_bytes or 0 for line in lines)
    return replace(
        lines[0],
        what=f"{len(lines)} small data sets and corpora: {', '.join(line.group for line in lines)}",
        amount="under 0.05 GB in all" if size < SMALL else f"{gigabytes(size)} in all",
        download_bytes=size,
    )


def _embeddings(lines: Sequence[StageLine]) -> StageLine:
    words = f"{len(lines)} tasks{tokens_words(_sum(lines, lambda line: line.tokens))}"
    return _summed(lines, what=lines[0].group, amount=words)


def _runs(lines: Sequence[StageLine]) -> StageLine:
    """Return one line for the seeds, the swept values and the tasks of a row."""
    first, tasks = lines[0], list(dict.fromkeys(line.group for line in lines))
    seeds = list(dict.fromkeys(line.seed for line in lines))
    objective = _swept(list(dict.fromkeys(line.objective for line in lines)))
    of = first.group if len(tasks) == 1 else ""
    what = run_words(first.subject, objective, f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds", of)
    tokens, steps, examples = (
        _sum(lines, lambda line: line.tokens),
        _sum(lines, lambda line: line.steps),
        _sum(lines, lambda line: line.examples),
    )
    if first.stage == "train":
        known = tokens is not None and steps is not None
        about = any(line.amount.startswith("~") for line in lines)
        return _summed(lines, what=what, amount=training_words(tokens, steps, about) if known else first.amount)
    if len(tasks) == 1:
        return _summed(lines, what=what, amount=evaluation_words(examples, tokens))
    count = f"{len(tasks)} tasks" if len(tasks) == len(lines) else f"{len(lines)} evaluations"
    return _summed(lines, what=what, amount=f"{count}{tokens_words(tokens)}")


def _summed(lines: Sequence[StageLine], *, what: str, amount: str) -> StageLine:
    """Return a line with the sums of several: the time is of what is to do."""
    done = sum(line.state == DONE for line in lines)
    times = [line.seconds for line in lines if line.state != DONE and line.seconds is not None]
    left = sum(times) if times else None
    memory = max((line.memory_bytes or 0 for line in lines), default=0) or None
    said = [duration(left)] if left is not None else []
    said += [gigabytes(memory)] if memory and done < len(lines) else []
    return replace(
        lines[0],
        what=what,
        amount=amount,
        estimate=", ".join(said),
        state=DONE if done == len(lines) else f"{done} of {len(lines)} {DONE}" if done else TO_DO,
        tokens=_sum(lines, lambda line: line.tokens),
        steps=_sum(lines, lambda line: line.steps),
        examples=_sum(lines, lambda line: line.examples),
        seconds=left,
        memory_bytes=memory,
    )


def _sum(lines: Sequence[StageLine], number: Callable[[StageLine], int | None]) -> int | None:
    """Return the sum of what is known, None where nothing is."""
    known = [value for line in lines if (value := number(line)) is not None]
    return sum(known) if known else None


def _swept(objectives: Sequence[str]) -> str:
    """Return objectives that differ in the value of one parameter as one, with its values."""
    found = [ONE_PARAMETER.fullmatch(text) for text in objectives]
    first = found[0]
    if len(objectives) == 1 or first is None:
        return objectives[0]
    values = "|".join(match["value"] for match in found if match is not None)
    return f"{first['name']}({first['parameter']}={values})"


FOLDS: dict[str, Callable[[Sequence[StageLine]], StageLine]] = {
    "download": _downloads,
    "embed": _embeddings,
    "train": _runs,
    "evaluate": _runs,
}
