"""Runs that would take a CPU hours, days or years: they stop before any work, unless `--device cpu` is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from emobench.core.errors import ConfigError, UserError
from emobench.models.device import AUTO
from emobench.runs.dry_run.outline import Outline
from emobench.runs.planning.estimate import duration
from emobench.runs.planning.request import Request

LONG = 4 * 3600.0
"""Seconds of a run on a CPU that has to be asked for: far more than the suites for CPUs take (minutes), less than a
night, and small beside the days of a model that was meant for a GPU."""

UNCERTAIN = 2
"""The factor by which an estimate may be too long or too short: a run is long if it is so at the least."""

ROUGH = 4
"""What a rough count may be short of an exact one, about: it decides alone where it is this far below `LONG`."""


class OutlineOf(Protocol):
    """Makes the outline of a request, such as `make_outline`."""

    def __call__(self, request: Request, *, exact: bool = True) -> Outline: ...


def advised(request: Request, outline_of: OutlineOf) -> Outline:
    """Return the outline of a request for a dry run: where a CPU would be long at it, it begins with what to type."""
    outline = outline_of(request)
    advice = None if request.device.startswith("cuda") else _advice(request, outline, outline_of)
    return outline if advice is None else replace(outline, ahead=(advice, *outline.ahead))


def require_short(request: Request, outline_of: OutlineOf) -> None:
    """Raise ConfigError for a request that would be long on a CPU that was not given by its name.

    A request that is wrong passes: its plan, which comes next, says what is wrong.
    """
    if request.device != "cpu" or request.asked_device != AUTO:
        return
    try:
        rough = outline_of(request, exact=False).totals().time
    except UserError:
        return
    # Almost every run on a CPU is short, and is not to wait for its corpus to be tokenized once more than it needs.
    if rough > UNCERTAIN * LONG / ROUGH and (advice := _advice(request, outline_of(request), outline_of)):
        raise ConfigError(f"{advice} Add --dry-run to see each stage.")


def too_long(here: float, on_gpu: float | None, less: str, *, asked: bool, unknown: int = 0) -> str | None:
    """Return the advice for a run that takes about `here` seconds on the CPU; None where that may not be long.

    `on_gpu`: seconds on a GPU, where they are known. `asked`: the CPU was given by its name, so that the run starts.
    """
    if here <= UNCERTAIN * LONG:
        return None
    least = f", not counting {unknown} stages whose size is not known" if unknown else ""
    gpu = "" if on_gpu is None else f"; on one H100-class GPU about {duration(on_gpu)}"
    most = duration(here * UNCERTAIN)
    times = f"about {duration(here)} ({duration(here / UNCERTAIN)} to {most}) on this machine's CPU{least}{gpu}"
    if asked:
        return f"Long: this takes {times}. For a GPU give --device cuda; for less work, {less}."
    return (
        f"Too long to start unasked: there is no CUDA device here, and this takes {times}. Give --device cpu to run it "
        f"here all the same, or --device cuda on a machine with a GPU; for less work, {less}."
    )


def _advice(request: Request, outline: Outline, outline_of: OutlineOf) -> str | None:
    totals = outline.totals()
    if totals.time <= UNCERTAIN * LONG:
        return None
    elsewhere = outline_of(replace(request, device="cuda"), exact=False).totals().time
    stages = {line.stage for line in outline.lines}
    less = ["a smaller --model", *(["--limit N"] if "evaluate" in stages else [])]
    less += ["--set recipe.max_tokens=N"] if "train" in stages else []
    asked = request.asked_device != AUTO
    return too_long(totals.time, elsewhere, " or ".join(less), asked=asked, unknown=totals.unknown)
