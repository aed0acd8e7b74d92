"""Seeds that were run one by one are one entry, as if one command had run them.

Two runs are pooled if all facts of their stages are equal, but for the seed and for what follows from it: the training,
or the weights of a checkpoint that another program trained. So code, packages, data, rules and machine are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import EmobenchError, StorageError
from emobench.core.seals import find_damage
from emobench.leaderboard.comparable import comparison_key
from emobench.leaderboard.entry import Entry, EntryCost, Run
from emobench.leaderboard.store import Leaderboard
from emobench.runs.stages.evaluate import EXAMPLES, SCORES, Evaluation
from emobench.runs.stages.stage import FACTS


class PooledRun(NamedTuple):
    """A run of an entry with its evaluations, and its share of the entry's cost."""

    run: Run
    evaluations: Sequence[Evaluation]
    cost: EntryCost


def other_seeds(entry: Entry, board: Leaderboard, runs: Path, note: Callable[[str], None]) -> dict[int, PooledRun]:
    """Return the runs of other seeds on a board that are to be pooled with an entry, by seed.

    Of two runs of one seed the newer one is taken. `note` receives a sentence for each pooled entry, and for each that
    is not pooled although its seeds are other ones.
    """
    pooled: dict[int, PooledRun] = {}
    own = None if entry.untrained else _read(entry.runs[0].key, runs, declared=entry.declared)
    if own is None:
        return pooled
    keys = {run.key for run in entry.runs}
    for other in _same_row(entry, board):
        taken: list[str] = []
        for run in other.runs:
            if run.seed is None or run.key in keys:
                continue
            where = f"seed {run.seed} of entry {other.id}"
            read = _read(run.key, runs, declared=other.declared)
            if run.seed in entry.seeds or run.seed in pooled:
                note(f"{where} is not pooled: there is a newer run of this seed")
            elif read is None:
                note(f"{where} is not pooled: the files of its run are not in {runs}")
            elif read.facts != own.facts:
                note(f"{where} is not pooled: it differs in more than its seed, such as package versions")
            else:
                pooled[run.seed] = PooledRun(run, read.evaluations, _share(other))
                taken.append(str(run.seed))
        if taken:
            note(f"pooled with entry {other.id}: seed {', '.join(taken)}")
    return pooled


def _same_row(entry: Entry, board: Leaderboard) -> Iterator[Entry]:
    """Yield the entries of a board that differ from an entry in seeds and results alone, the newest first."""
    key = comparison_key(entry)
    for row in reversed(board.rows()):
        if (row.comparison_key, row.label) == (key, entry.objective.label):
            with suppress(EmobenchError):  # altered a moment ago: `leaderboard verify` names it
                other = board.read(row)
                if (other.kind, other.objective) == (entry.kind, entry.objective):
                    yield other


class _Stages(NamedTuple):
    """The facts of a run's stages that do not follow from its seed, and the run's evaluations."""

    facts: list[dict[str, Any]]
    evaluations: list[Evaluation]


def _read(key: str, runs: Path, *, declared: bool) -> _Stages | None:
    """Return the stages of a run; None if a file is missing or was altered."""
    stages = _Stages([], [])
    try:
        for score in _stage_facts(runs / "examples" / key)["scores"]:
            folder = runs / "score" / score
            scored = _stage_facts(folder)
            generated = _stage_facts(runs / "generate" / scored.pop("generation"))
            training = scored["subject"].pop("training", None)
            generated["subject"].pop("training", None)
            if declared:
                del scored["subject"]["model"], generated["subject"]["model"]
            stages.facts.extend((scored, generated))
            if training is not None:
                trained = _stage_facts(runs / "train" / training)
                del trained["seed"]
                stages.facts.append(trained)
            for name in (SCORES, EXAMPLES):
                sealed(folder / name)
            stages.evaluations.append(Evaluation(folder, score))
    except (EmobenchError, OSError, LookupError, ValueError):
        return None
    return stages


def _stage_facts(folder: Path) -> dict[str, Any]:
    return json.loads(sealed(folder / FACTS).read_text(encoding="utf-8"))


def sealed(path: Path) -> Path:
    """Return a file of a finished stage; StorageError if it is missing or any byte of it changed."""
    damage = find_damage(path.parent, full=True, only=path.name)
    if damage is not None:
        raise StorageError(f"{damage}; nothing was recorded. Restore it, or remove {path.parent} and run again.")
    return path


def _share(entry: Entry) -> EntryCost:
    """Return the cost of one of an entry's runs: an equal share of all but the peak of memory."""
    shares: dict[str, Any] = {}
    for name, value in vars(entry.cost).items():
        shares[name] = value
        if value is not None and name in ("train_seconds", "evaluate_seconds", "tokens"):
            shares[name] = value / len(entry.runs)
    if shares["tokens"] is not None:
        shares["tokens"] = round(shares["tokens"])
    return EntryCost(**shares)


def total_cost(own: EntryCost, others: Sequence[EntryCost]) -> EntryCost:
    """Return the sums of the costs of runs; of memory and accumulation the highest."""
    total = dict(vars(own))
    for cost in others:
        for name, value in vars(cost).items():
            if value is None:
                continue
            if total[name] is None:
                total[name] = value
            elif name in ("peak_memory_bytes", "accumulation"):
                total[name] = max(total[name], value)
            else:
                total[name] += value
    return EntryCost(**total)
