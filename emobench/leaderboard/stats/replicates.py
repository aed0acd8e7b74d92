"""Whether the runs of an entry are replicates: trainings that moved their weights, each to others."""

from __future__ import annotations

from emobench.leaderboard.schema.entry import Entry


def no_replicates(entry: Entry, metric: str) -> str | None:
    """Return why the runs of an entry are no replicates for a metric; None if they are, or if nothing is known."""
    task = metric.partition("/")[0]
    seed_of: dict[str, int | None] = {}
    for run in entry.runs:
        for weights in run.weights:
            if task not in weights.tasks:
                continue
            if weights.trained == weights.base:
                return f"the training of seed {run.seed} changed no weight"
            if weights.trained in seed_of:
                return f"seeds {seed_of[weights.trained]} and {run.seed} have the same weights"
            seed_of[weights.trained] = run.seed
    return None
