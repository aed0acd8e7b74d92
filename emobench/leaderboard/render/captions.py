"""What stands above and below a leaderboard table: the conditions that its rows share, and what its marks mean."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.config import content_hash
from emobench.leaderboard.query.standings import Standings
from emobench.leaderboard.render.adjustment import adjustment
from emobench.leaderboard.render.numbers import listed
from emobench.leaderboard.schema.comparable import changed_rules, differences, digests
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.labels import clean, parameters
from emobench.leaderboard.stats.thresholds import MIN_SEEDS
from emobench.tasks.families import PRIMARY

NOISE = "the noise of seeds and test examples"
BASE = "All rows start from one pre-trained model: the effect of another one is in no spread and no mark."
_APART = "A rank and the * of a difference may disagree: ranks are adjusted for all pairs of objectives."
FEW = 3
"""Metrics that are named one by one."""


def conditions(entry: Entry, tasks: Sequence[str]) -> str:
    """Return the protocol, its changed rules, recipe and data that all rows of a group share, in one line."""
    recipe = str(entry.recipe.get("name", ""))
    if entry.recipe.get("corpus"):
        recipe += f" on {entry.recipe['corpus']}"
    own = changed_rules(entry, tasks)
    protocol = f"protocol {_protocols(entry, tasks)}" + (f" with {own}" if own else "")
    parts = [protocol, f"recipe {recipe}" if recipe else "", _data(entry)]
    return clean(" · ".join(filter(None, parts)))


def apart(entry: Entry, above: Sequence[Entry]) -> str:
    """Return what keeps a table from being ranked with the first of those above it, in a sentence.

    `above` holds a row of each table of its suite and model that stands above, without a gap.
    """
    # What a person chose says more than the hashes that follow from it.
    found = sorted(differences(above[0], entry), key=lambda text: text.startswith("data of "))
    which = "the table above" if len(above) == 1 else f"the first table of {entry.suite} · {entry.model.name}"
    return clean(f"Not ranked with {which}: {listed(found, 3, '; ', ', and')}.")


def shared_parameters(group: Sequence[Entry]) -> list[str]:
    return [clean(found)] if (found := parameters(group)) else []


def legend(shown: Standings, labels: dict[str, str], *, intervals: bool, own: bool) -> list[str]:
    """Return what the table's numbers and marks mean, and why a mark is not there."""
    current = [entry for entry in shown.rows if entry.id not in shown.older]
    lines = [" ".join(filter(None, [_spread(current, intervals), _stars(shown, current)])), *_ranks(shown)]
    if shown.baseline is not None:
        lines.append(_baseline(shown, labels))
    lines += [*_adjusted(shown), *([BASE] if shown.tested else [])]
    if not intervals and not isinstance(shown.baseline, Entry):
        lines += _beyond_spread(shown.metrics, current)
    lines += _untested(shown, current)
    if shown.absent:
        reasons: dict[str, list[str]] = {}
        for metric, why in shown.absent.items():
            reasons.setdefault(why, []).append(metric)
        said = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
        lines.append(f"Of no objective: {'; '.join(said)}.")
    if own:
        lines.append("› one of this run's objectives.")
    return [clean(line) for line in (*lines, *_older(shown, labels)) if line]


def _protocols(entry: Entry, tasks: Sequence[str]) -> str:
    by_protocol: dict[str, list[str]] = {}
    shown = list(tasks or entry.protocols)
    for task in shown:
        by_protocol.setdefault(entry.protocols.get(task, "none"), []).append(task)
    # Of several tasks the columns have the names, and one that is called as its suite needs none.
    if len(by_protocol) == 1 and (len(shown) > 1 or shown == [entry.suite.name]):
        return next(iter(by_protocol))
    named: dict[str, list[str]] = {}
    for protocol, of in by_protocol.items():
        name, _, digest = protocol.partition("@")
        named.setdefault(name, []).append(" ".join(filter(None, [", ".join(of), digest])))
    return "; ".join(f"{name} ({', '.join(of)})" for name, of in named.items())


def _data(entry: Entry) -> str:
    if not entry.provenance.data:
        return ""
    local = any("(local" in digest for digest in entry.provenance.data.values())
    return f"data {content_hash(digests(entry))[:6]}" + (" (local)" if local else "")


def _seeds(group: Sequence[Entry]) -> list[int]:
    """Return the numbers of seeds of the trained rows, ascending; of a row that names none, 0."""
    return sorted({len(entry.seeds) for entry in group if not entry.untrained})


def _enough_seeds(rows: Sequence[Entry]) -> bool:
    return max(_seeds(rows), default=0) >= MIN_SEEDS


def _spread(current: Sequence[Entry], intervals: bool) -> str:
    counts = _seeds(current)
    if not counts or counts[-1] < 2:
        return "Values of one seed." if counts == [1] else "Single values."
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Mean {'[95 % interval]' if intervals else '± standard deviation'} over {many} seeds."


def _beyond_spread(metrics: Sequence[str], rows: Sequence[Entry]) -> list[str]:
    """Name the metrics of which more noise is left, averaged over their draws, than ± shows."""
    found = [metric for metric in metrics if any(_hides(e.metrics[metric]) for e in rows if metric in e.metrics)]
    if not found:
        return []
    return [f"± of {_named(found, metrics)} is not all of the noise: `emobench compare` says where it comes from."]


def _hides(summary: MetricSummary) -> bool:
    times = summary.mean if summary.unit == "perplexity" else 1.0  # whose parts are of logarithms
    return summary.std is not None and summary.left * times > summary.std


def _stars(shown: Standings, current: Sequence[Entry]) -> str:
    """Say what * means, or why there is none; differences from a baseline have a * of their own."""
    counts = _seeds(current)
    if len(current) < 2 or not counts:
        return ""
    if counts[0] < MIN_SEEDS:
        few = f"Fewer than {MIN_SEEDS} seeds cannot tell objectives apart: nothing is tested, marked or ranked"
        which = (
            few
            if counts[-1] < MIN_SEEDS
            else f"Nothing is marked as best: one objective has fewer than {MIN_SEEDS} seeds"
        )
        return which + (" (--seed 0 --seed 1 --seed 2)." if counts[0] else ".")
    if shown.baseline is not None:
        return ""
    deciding = [metric for metric in shown.metrics if any(metric in entry.families for entry in current)]
    if not deciding and shown.metrics:
        one = len(shown.metrics) == 1
        does = "describes and decides" if one else "describe and decide"
        return f"{_named(shown.metrics, shown.metrics)} {does} nothing: nothing is marked as best."
    if all(metric in shown.untested for metric in deciding):
        return ""
    best = any(shown.best.values())
    said = "* better than every other objective" if best else "No objective is better than every other"
    return f"{said} beyond {NOISE}, as `emobench compare` tests each pair (two-sided 5 %, paired by seed)."


def _ranks(shown: Standings) -> list[str]:
    places = shown.ranking
    if places is None or len(shown.rows) - len(shown.older) < 2:
        return []
    tasks = len(places.columns)
    over = f"mean {places.name} over {tasks} tasks" if tasks > 1 else places.name.rpartition("/")[2]
    if places.places:
        pairs = f"{places.tests} {'pair' if places.tests == 1 else 'pairs'}"
        what = ", the primary endpoint" if places.family == PRIMARY else ""
        said = (
            f"Rank by {over}{what}: 1 + the objectives that are better beyond noise (two-sided 5 %, Holm over {pairs})."
        )
        return [f"{said} {_APART}" if isinstance(shown.baseline, Entry) else said]
    # Without a row of enough seeds, `_stars` has said so.
    return [f"Not ranked by {over}: {places.remark}."] if _enough_seeds(shown.rows) else []


def _baseline(shown: Standings, labels: dict[str, str]) -> str:
    if not isinstance(shown.baseline, Entry):
        return f"No differences: {shown.baseline}."
    name = labels[shown.baseline.id]
    text = f"Differences from {name}: in points where the unit is %, in percent for perplexities, else in the unit."
    found = [contrast for row in shown.differences.values() for contrast in row.values()]
    if any(contrast.beyond_noise for contrast in found):
        return f"{text} * beyond {NOISE} (two-sided 5 %)."
    if any(contrast.verdict == "tied" and contrast.p is not None for contrast in found):
        return f"{text} None is beyond {NOISE} (two-sided 5 %)."
    if any(contrast.verdict == "tied" for contrast in found):
        return f"{text} None is beyond {NOISE}: what could be compared has equal values."
    return text


def _adjusted(shown: Standings) -> list[str]:
    """Say which test is the primary one and what the others' p are adjusted for, where a mark may rest on it."""
    found = [contrast for row in shown.differences.values() for contrast in row.values()]
    return adjustment(shown.tested if shown.baseline is None else found)


def _untested(shown: Standings, current: Sequence[Entry]) -> list[str]:
    """Say what got no verdict and why: differences from the baseline, or metrics of which none is the best."""
    seeds = _seeds(current)
    found: dict[tuple[str, str], dict[str, None]] = {}
    if isinstance(shown.baseline, Entry):
        found_in = [pair for row in shown.differences.values() for pair in row.items()]
        pairs = [(metric, c.why, c.p is not None) for metric, c in found_in if c.verdict == "undetermined"]
    else:  # where a row has too few seeds, `_stars` has said so
        enough = seeds and seeds[0] >= MIN_SEEDS
        pairs = [(metric, why, False) for metric, why in shown.untested.items()] if enough else []
    for metric, why, tested in pairs:
        if why and _enough_seeds(current):
            found.setdefault(("No verdict" if tested else "Not tested", why), {})[metric] = None
    return [f"{said}: {_named(list(metrics), shown.metrics)} ({why})." for (said, why), metrics in found.items()]


def _named(metrics: Sequence[str], shown: Sequence[str]) -> str:
    if len(metrics) > FEW:
        return f"{len(metrics)} of {len(shown)} metrics"
    one_task = len({metric.split("/", 1)[0] for metric in shown}) == 1
    return ", ".join(metric.rpartition("/")[2] if one_task else metric for metric in metrics)


def _older(shown: Standings, labels: dict[str, str]) -> list[str]:
    if not shown.older:
        return []
    found = ", ".join(labels[entry.id] for entry in shown.rows if entry.id in shown.older)
    return [f"{found}: the same name and parameters, other code. Older code is neither marked nor ranked."]
