"""AlpacaEval's length-controlled win rates by `emobench judges score`, beside those that AlpacaEval publishes.

    python tests/benchmarks evidence.length_controlled --alpaca-eval CLONE --data-dir DIR [--out FILE]

DIR holds the released annotations (<model>.annotations.jsonl) and alpaca_eval_gpt4_leaderboard.csv. The regression
also needs df_gamed.csv of the hub. Without a hub, this file is computed from what the repository alpaca_eval publishes
(CLONE, a git directory): for each model m of AlpacaEval 2 the weights of its regression, its length-controlled win
rate, and for some models the judgements. With the difficulty d_i of instruction i,

    P(m preferred in i)       = sigmoid(length_m tanh(l_mi) + slope_m d_i + bias_m)
    length-controlled rate    = mean over i of sigmoid(slope_m d_i + bias_m)

so that d is the maximum of the judgements' likelihood (with a weak normal prior) that gives the published rates, too.
The two brief and long baselines have published lengths; as their preferences stand the probabilities by their own
weights, whose sums over the features are those of the judgements where an unpenalized fit has converged.

`left_out` has the differences from the published rates of models whose judgements and rates were not used for d: the
judged models in ten parts, each left out in turn.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import RESULTS, origin, write
from numpy.typing import NDArray
from scipy.optimize import minimize

from emobench.kinds.instruct.judging.annotations import in_order, length_controlled

Floats = NDArray[np.float64]

JUDGE = "weighted_alpaca_eval_gpt4_turbo"
PACKAGE = "src/alpaca_eval"
BASELINE = "gpt4_1106_preview"
GAMED = (f"{BASELINE}_concise", f"{BASELINE}_verbose")
MODELS = ("alpaca-7b", "llama-2-7b-chat-hf", "vicuna-13b")
LENGTH, SLOPE, BIAS = "np.tanh(std_delta_len)", "instruction_difficulty", "not_gamed_baseline.astype(float)"
INSTRUCTIONS = 805
PARTS = 10
PRIOR = 0.3
"""The precision of the prior of a difficulty."""
RATE_SCALE = 0.02
"""The scale, in points, of the Cauchy errors that published rates may have: a few are of another fit."""


def sigmoid(x: Floats) -> Floats:
    return np.exp(-np.logaddexp(0, -x))


@dataclass(frozen=True)
class Published:
    """What a clone of alpaca_eval holds."""

    clone: Path

    def text(self, path: str) -> bytes:
        return subprocess.run(
            ["git", "-C", self.clone, "show", f"HEAD:{path}"], check=True, stdout=subprocess.PIPE
        ).stdout

    def weights(self) -> pd.DataFrame:
        path = f"{PACKAGE}/metrics/weights/{JUDGE}/length_controlled_v1/baseline_{BASELINE}.csv"
        table = pd.read_csv(io.BytesIO(self.text(path)), index_col=0)
        return table[~table.index.duplicated(keep="last")]

    def leaderboard(self) -> pd.DataFrame:
        path = f"{PACKAGE}/leaderboards/data_AlpacaEval_2/{JUDGE}_leaderboard.csv"
        return pd.read_csv(io.BytesIO(self.text(path)), index_col=0)

    def outputs(self, model: str) -> pd.DataFrame:
        return pd.DataFrame(json.loads(self.text(f"results/{model}/model_outputs.json")))

    def judged_models(self) -> Iterator[str]:
        """Yield the models whose judgements the clone has; a snapshot may lack large files."""
        listed = subprocess.run(
            ["git", "-C", self.clone, "ls-tree", "-r", "-l", "HEAD", "results/"], check=True, stdout=subprocess.PIPE
        )
        for line in listed.stdout.decode().splitlines():
            about, path = line.split("\t")
            if path.endswith(f"/{JUDGE}/annotations.json") and about.split()[-1].isdigit():
                yield path.split("/")[1]

    def annotations(self, model: str) -> list[dict[str, Any]]:
        return json.loads(self.text(f"results/{model}/{JUDGE}/annotations.json"))

    def judgements(self, model: str, places: dict[str, int]) -> pd.DataFrame:
        """Return index, preference (0 to 1) and tanh of the difference of lengths over its deviation."""
        rows = pd.DataFrame(self.annotations(model))
        longer = rows["output_1"].str.len() - rows["output_2"].str.len()
        preference = rows["preference"].astype(float).replace({0.0: 1.5}) - 1
        length = np.tanh(longer / longer.std())
        found = pd.DataFrame(
            {"index": rows["instruction"].map(places), "preference": preference, "length": length, "model": model}
        )
        return found.dropna().drop_duplicates("index")


def difficulties(judged: pd.DataFrame, weights: pd.DataFrame, rates: pd.Series) -> tuple[Floats, Floats]:
    """Return the difficulty of each instruction, and by how many points the published rates are missed."""
    index, preference = judged["index"].to_numpy(int), judged["preference"].to_numpy().clip(0, 1)
    own = weights.loc[judged["model"]]
    slope = own[SLOPE].to_numpy()
    fixed = own[LENGTH].to_numpy() * judged["length"].to_numpy() + own[BIAS].to_numpy()
    slope_M, bias_M = (weights.loc[rates.index, name].to_numpy()[:, None] for name in (SLOPE, BIAS))

    def errors(d_I: Floats) -> tuple[Floats, Floats]:
        p_MI = sigmoid(slope_M * d_I + bias_M)
        return 100 * p_MI.mean(1) - rates.to_numpy(), 100 * p_MI * (1 - p_MI) * slope_M / INSTRUCTIONS

    def objective(d_I: Floats) -> tuple[float, Floats]:
        z = fixed + slope * d_I[index]
        value = (np.logaddexp(0, z) - preference * z).sum() + PRIOR / 2 * (d_I**2).sum()
        gradient = np.bincount(index, slope * (sigmoid(z) - preference), INSTRUCTIONS) + PRIOR * d_I
        error_M, by_MI = errors(d_I)
        scaled = error_M / RATE_SCALE
        value += np.log1p(scaled**2).sum()
        return value, gradient + (2 * scaled / (1 + scaled**2) / RATE_SCALE) @ by_MI

    options = {"maxiter": 3000, "maxfun": 5000}
    d_I = minimize(objective, np.zeros(INSTRUCTIONS), jac=True, method="L-BFGS-B", options=options).x
    return d_I, errors(d_I)[0]


def gamed_rows(published: Published, weights: pd.DataFrame, d_I: Floats) -> pd.DataFrame:
    """Return the rows of df_gamed.csv."""
    lengths = {model: published.outputs(model)["output"].str.len() for model in (BASELINE, *GAMED)}
    parts = []
    for model in GAMED:
        longer = lengths[BASELINE] - lengths[model]
        length, own = longer / longer.std(), weights.loc[model]
        preference = sigmoid(own[LENGTH] * np.tanh(length.to_numpy()) + own[SLOPE] * d_I + own[BIAS])
        columns = {"preference": preference, "index": range(INSTRUCTIONS), "std_delta_len": length}
        known = {"instruction_difficulty": d_I, "not_gamed_baseline": False, "model": model}
        parts.append(pd.DataFrame({**columns, **known}))
    return pd.concat(parts)


def left_out(
    published: Published, judged: pd.DataFrame, weights: pd.DataFrame, rates: pd.Series, folder: Path
) -> dict[str, float]:
    """Return, for each model that is left out, by how many points its rate differs from the published one.

    These are the models with a judgement of every instruction, and a published rate.
    """
    counts = judged["model"].value_counts()
    models = sorted(set(counts[counts == INSTRUCTIONS].index) & set(rates.index))
    found: dict[str, float] = {}
    for part in range(PARTS):
        chosen = models[part::PARTS]
        d_I, _ = difficulties(judged[~judged["model"].isin(chosen)], weights, rates.drop(chosen))
        file = folder / f"{part}.csv"
        gamed_rows(published, weights, d_I).to_csv(file, index=False)
        for model in chosen:
            ours = length_controlled(in_order(published.annotations(model)), file)
            assert ours is not None
            found[model] = 100 * ours - float(rates[model])
    return found


def scores(data_dir: Path, gamed: Path) -> dict[str, dict[str, float]]:
    """Return what `emobench judges score` says of the released annotations, by model."""
    files = [str(data_dir / f"{model}.annotations.jsonl") for model in MODELS]
    command = [sys.executable, "-m", "emobench", "judges", "score", *files]
    done = subprocess.run(
        [*command, "--data-dir", str(gamed), "--offline", "--json"], check=True, stdout=subprocess.PIPE
    )
    return {row["model"]: row for row in json.loads(done.stdout)}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alpaca-eval", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS / "evidence" / "length_controlled.json")
    given = parser.parse_args(argv)
    published = Published(given.alpaca_eval)
    weights = published.weights()
    places = {text: place for place, text in enumerate(published.outputs(BASELINE)["instruction"])}
    rates = published.leaderboard()["length_controlled_winrate"].reindex(weights.index).dropna().drop(BASELINE)
    known = [model for model in published.judged_models() if model in weights.index]
    judged = pd.concat([published.judgements(model, places) for model in known])
    d_I, errors = difficulties(judged, weights, rates)
    rows = gamed_rows(published, weights, d_I)
    with tempfile.TemporaryDirectory() as folder:
        rows.to_csv(Path(folder) / "df_gamed.csv", index=False)
        ours = scores(given.data_dir, Path(folder))
        apart = left_out(published, judged, weights, rates, Path(folder))
    theirs = pd.read_csv(given.data_dir / "alpaca_eval_gpt4_leaderboard.csv", index_col=0)
    whole = published.leaderboard()
    missed = np.abs(errors)
    found: dict[str, Any] = {
        "judged_models": len(known),
        "rates": len(rates),
        "missed_points": {"median": float(np.median(missed)), "most": float(missed.max())},
        "left_out": {
            "models": len(apart),
            "median": float(np.median(np.abs(list(apart.values())))),
            "p95": float(np.quantile(np.abs(list(apart.values())), 0.95)),
            "most": max(apart.items(), key=lambda one: abs(one[1])),
            "differences": apart,
        },
        "baselines": {
            model: {
                "win_rate": float(100 * rows.loc[rows["model"] == model, "preference"].mean()),
                "published": float(whole.loc[model, "win_rate"]),
            }
            for model in GAMED
        },
        "models": {
            model: {
                "length_controlled": 100 * ours[model]["length_controlled"],
                "published": float(theirs.loc[model, "length_controlled_winrate"]),
            }
            for model in MODELS
        },
    }
    write({**origin(__file__, argv, "cpu"), **found}, given.out)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
