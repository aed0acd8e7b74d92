"""AlpacaEval's annotations to its metrics: win rate, standard error, and the win rate at equal lengths.

An annotation is a judged pair, as the package alpaca-eval writes it: `output_1` is the reference's, `output_2` the
model's, and `preference` 1 for the first, 2 for the second, 0 or 1.5 for a tie, or a number between 1 and 2. Other
numbers are no preferences; the package drops them, and so does this module.

The length-controlled win rate (Dubois et al., 2024) is that of a logistic regression of the preferences on the
difference of lengths, at a difference of 0. Fit and design matrix are the package's. Its regression also has the
difficulty of each of AlpacaEval's 805 instructions, which are known by their texts. It is regularized by the
judgements of two baselines that were asked to be brief and to be long. Difficulties and judgements are in its file
df_gamed.csv on the hub. Without it there is the package's own smallest regression, `length_controlled_minimal`, which
is another number.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import DataError
from emobench.core.extras import require
from emobench.core.reading import is_file
from emobench.data.rows import hub_files, json_rows, jsonl_rows, shown
from emobench.kinds.instruct.judging.alpaca_eval_order import place_of
from emobench.kinds.instruct.judging.judgements import win_rate

GAMED, REPO = "df_gamed.csv", "tatsu-lab/alpaca_eval"
INSTRUCTIONS = 805
FIELDS = ("output_1", "output_2", "preference")
MOST_NAMED = 3
"""Models that are named one by one."""


@dataclass(frozen=True, kw_only=True)
class AnnotatedRates:
    """What annotations say of a model; rates and errors are fractions."""

    model: str
    count: int
    """Annotations with a preference."""
    win_rate: float
    standard_error: float
    length_controlled: float | None
    """As AlpacaEval publishes it; None without df_gamed.csv."""
    length_controlled_minimal: float | None
    """By the lengths alone; None where there is nothing to fit."""
    missing: str = ""
    """Why `length_controlled` is missing, and what to do."""


def read_annotations(path: Path) -> list[dict[str, Any]]:
    """Read a file of annotations of one model: a JSON list, or one object a line.

    Raises DataError for a row that is no annotation, for an instruction that is there twice, and for several models.
    """
    rows = list(jsonl_rows(path)) if path.suffix == ".jsonl" else json_rows(path)
    for where, row in rows:
        if absent := [name for name in FIELDS if name not in row]:
            raise DataError(
                f"{where}: expected {', '.join(FIELDS)} of AlpacaEval's annotations; {absent[0]} is not there."
            )
    if len(rows) < 2:
        raise DataError(f"{path} holds {len(rows)} annotations; expected two or more.")
    first: dict[str, str] = {}
    for where, row in rows:
        _check(row, where)
        instruction = row.get("instruction")
        if isinstance(instruction, str) and first.setdefault(instruction, where) != where:
            raise DataError(f"{where}: this instruction is judged in {first[instruction]}, too; keep one of them.")
    for column in ("generator_2", "generator_1"):
        names = sorted({str(row.get(column, "")) for _, row in rows})
        if len(names) > 1:
            listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
            raise DataError(f"{path}: `{column}` names {len(names)} models ({listed}); give a file for each of them.")
    return [row for _, row in rows]


def _check(row: Mapping[str, Any], where: str) -> None:
    """Raise DataError for an output that is no text, and a preference that is neither a number nor missing."""
    for name in ("output_1", "output_2"):
        if not isinstance(row[name], str):
            raise DataError(f"{where}: `{name}` must be a text, got {shown(json.dumps(row[name]).encode())}.")
    preference = row["preference"]
    if preference is not None and (isinstance(preference, bool) or not isinstance(preference, (int, float))):
        raise DataError(
            f"{where}: `preference` must be a number from 1 to 2, 0 for a tie, or null, got "
            f"{shown(json.dumps(preference).encode())}."
        )


def gamed_file(data_dirs: Sequence[Path], *, offline: bool) -> Path:
    """Return df_gamed.csv of the first data folder that has it, else of the hub. Raises DataError, which says what."""
    if local := next((folder / GAMED for folder in data_dirs if is_file(folder / GAMED)), None):
        return local
    try:
        (file,), _ = hub_files(REPO, "main", GAMED, offline=offline)
    except DataError as error:
        raise DataError(
            f"The length-controlled win rate needs {GAMED} of the data set {REPO} on the hub, which is not here "
            f"({error}) Put it in DIR/{GAMED} and give --data-dir DIR."
        ) from None
    return file


def rates(rows: Sequence[Mapping[str, Any]], data_dirs: Sequence[Path] = (), *, offline: bool) -> AnnotatedRates:
    """Return the metrics of annotations. Raises DataError where no two have a preference."""
    require("alpaca_eval")
    judged = [found for row in rows if (found := preference_of(row)) is not None]
    if len(judged) < 2:
        raise DataError(f"{len(judged)} of {len(rows)} annotations have a preference; expected two or more.")
    rate, error = win_rate(judged)
    long, missing = None, ""
    try:
        long = length_controlled(in_order(rows), gamed_file(data_dirs, offline=offline))
    except DataError as problem:
        missing = str(problem)
    return AnnotatedRates(
        model=str(rows[0].get("generator_2", "")),
        count=len(judged),
        win_rate=rate,
        standard_error=error,
        length_controlled=long,
        length_controlled_minimal=length_controlled(rows, None),
        missing=missing,
    )


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the annotations of AlpacaEval's 805 instructions in their order, whose difficulty is known by it.

    805 rows without any of these instructions, such as translated ones, are taken to be in order. Raises DataError for
    other rows.
    """
    places = {place_of(str(row.get("instruction", ""))): row for row in rows}
    if len(rows) == INSTRUCTIONS and places.keys() == {None}:
        return list(rows)
    if len(rows) != INSTRUCTIONS or places.keys() != set(range(INSTRUCTIONS)):
        known = len(places.keys() - {None})
        raise DataError(
            f"The length-controlled win rate is of AlpacaEval's {INSTRUCTIONS} instructions, whose difficulty is "
            f"known; here are {len(rows)} annotations, of {known} of these instructions."
        )
    return [places[place] for place in range(INSTRUCTIONS)]


def preference_of(row: Mapping[str, Any]) -> float | None:
    """Return how much the model's response is preferred, from 0 to 1; None for no number and one that is none."""
    value = row["preference"]
    if value == 0:
        return 0.5
    return float(value) - 1 if value is not None and 1 <= value <= 2 else None


def length_controlled(rows: Sequence[Mapping[str, Any]], gamed: Path | None) -> float | None:
    """Return the win rate at equal lengths, a fraction: by `length_controlled_v1` with df_gamed.csv, else minimal.

    With df_gamed.csv, rows must be in AlpacaEval's order (`in_order`). None where there is nothing to fit: all pairs
    differ by the same length, fewer have a preference than the cross-validation has folds, or all are won, or all lost.
    The features are those of alpaca-eval 0.6.6, metrics/glm_winrate.py.
    """
    with warnings.catch_warnings(action="ignore"):  # of pkg_resources, and of scikit-learn about the fit's options
        import pandas as pd
        from alpaca_eval.metrics import glm_winrate as package

        info = package.GLM_INFO["length_controlled_minimal" if gamed is None else "length_controlled_v1"]
        longer = pd.Series([float(len(row["output_1"]) - len(row["output_2"])) for row in rows])
        if longer.nunique() == 1:
            return None
        preferences = [preference_of(row) for row in rows]
        given = [found for found in preferences if found is not None]
        if len(given) < info["kwargs"]["n_splits"] or max(given) == 0 or min(given) == 1:
            return None
        own = pd.DataFrame({"preference": preferences, "index": range(len(rows)), "not_gamed_baseline": True})
        own["preference"] = own["preference"].astype(float)
        own["std_delta_len"] = longer / longer.std()
        train, weights = own, None
        if gamed is not None:
            others = pd.read_csv(gamed).drop(columns=["model"])
            own["instruction_difficulty"] = others.drop_duplicates("index")["instruction_difficulty"].to_numpy()
            train = pd.concat([others, own], axis=0)
            is_own = train["not_gamed_baseline"].astype(bool)
            weights = is_own.astype(float) + info["regularize_to_baseline_lambda"] * (~is_own).astype(float) / 2
        equal = own.assign(std_delta_len=0)
        features, at_equal = package.make_dmatrix_for_model(train, equal, formula=info["formula"])
        known = features["preference"].notna()
        weights = None if weights is None else weights[known]
        fit = package.fit_LogisticRegressionCV(
            features[known], "preference", is_ytrue_proba=True, sample_weight=weights, **info["kwargs"]
        )
        return float(fit.predict_proba(at_equal)[:, 1].mean())
