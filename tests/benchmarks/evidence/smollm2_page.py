"""The tables and figures of docs/evidence.md, from the entries that `evidence.smollm2` recorded.

    python tests/benchmarks evidence.smollm2_page [--leaderboard DIR] [--runs DIR] [--out docs/evidence.md]

Writes each table between its two comments in the page, and the figures next to it. Nothing is trained or scored.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from evidence.smollm2 import FEWER, LIMIT, MAIN, MODEL, OTHERS, OWN, SETTINGS, TASKS

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesReader, find_file
from emobench.leaderboard.stats.classical import ALPHA, holm
from emobench.leaderboard.stats.compare import Contrast, compare, series_reader
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.series import effective
from emobench.leaderboard.store import Leaderboard
from emobench.report.charts.compare_chart import LIGHT, TEXT, forest
from emobench.report.charts.vega_lite import axis, panel, picture, write_picture
from emobench.training.curves import read_curves

ROOT = Path(__file__).parents[3]
CORPORA = {"wikitext2": "WikiText-2", "ag_news": "AG News", "webtext": "WebText"}
COLUMNS = {
    "ppl_test": ("PPL_test ↓", 1, 1),
    "mauve": ("MAUVE (%) ↑", 100, 1),
    "ppl_oracle": ("PPL_oracle ↓", 1, 0),
    "entropy": ("entropy (nats)", 1, 2),
    "rep_4": ("rep-4 (%) ↓", 100, 1),
    "coherence": ("coherence ↑", 1, 3),
}
"""Metric -> its heading, what its values are multiplied by, and decimals."""
FAST = ("ppl_test", "mauve", "entropy", "rep_4")
"""Those that all conditions have."""
MEANS = {"mauve": "MAUVE (%) ↑", "rouge1": "ROUGE-1 (%) ↑", "rouge2": "ROUGE-2 (%) ↑", "rougeL": "ROUGE-L (%) ↑"}
BASE = {
    "learning_rate": 5e-5,
    "max_tokens": int(SETTINGS["recipe.max_tokens"]),
    "lora": False,
    "limit": LIMIT,
    "prefix": 20,
    "sampling.temperature": 1.0,
    "mauve.featurizer": SETTINGS["mauve.featurizer"],
    "model": MODEL,
}
"""The settings of the main condition; the others differ from it in one."""
WORDS = {
    "learning_rate": "learning rate {:g}",
    "max_tokens": "{:,} tokens",
    "lora": "LoRA",
    "limit": "{:,} texts",
    "prefix": "prefix of {} tokens",
    "sampling.temperature": "temperature {:g}",
    "mauve.featurizer": "MAUVE's features: {}",
    "model": "{}",
}
TRAINING = ("learning_rate", "max_tokens", "lora")
"""The settings that change the model, not how it is sampled or scored."""
MODELS = {"smollm2-135m-instruct": "SmolLM2-135M", "gemma-3-270m": "Gemma 3 270M"}
LABELLED = {
    "sst2": "SST-2",
    "subj": "SUBJ",
    "trec": "TREC",
    "rotten_tomatoes": "Rotten Tomatoes",
    "ag_news": "AG News",
}
Cell = tuple[str, tuple[str, ...]]
"""A task, and what differs from the main condition."""


def changed(entry: Entry, task: str) -> dict[str, Any]:
    """Return the settings that differ from the task's main condition."""
    own = {name.partition(".")[2]: int(value) for name, value in OWN.get(task, {}).items()}
    base = BASE | {name: value for name, value in own.items() if name in BASE}
    recipe: Mapping[str, Any] = entry.recipe or {}
    rules = next(iter(entry.changes.values()), {})
    given = {**base, **{key: recipe[key] for key in BASE if key in recipe}, "model": entry.model.name}
    given |= {key: rules[key] for key in BASE if key in rules}
    return {key: given[key] for key, value in base.items() if given[key] != value}


class Study:
    """The entries of a board: of generation by condition and objective, of answers by model, protocol and objective."""

    def __init__(self, board: Path, runs: Path) -> None:
        self.cells: dict[Cell, dict[str, Entry]] = {}
        self._board, self._runs = board, runs
        self._examples = ExamplesReader(runs, [board])
        for entry in Leaderboard(board).entries(suite="generation"):
            (task,) = entry.protocols
            name = entry.objective.name
            if name == "emo" and entry.objective.params["cost"] != "pretrained":
                name = "emo, centred cost"
            words = tuple(WORDS[key].format(value) for key, value in changed(entry, task).items())
            self.cells.setdefault((task, words), {})[name] = entry
        self.answers: dict[tuple[str, str], dict[str, Entry]] = {}
        for entry in Leaderboard(board).entries(suite="nlu"):
            (protocol,) = {name.partition("@")[0] for name in entry.protocols.values()}
            self.answers.setdefault((entry.model.name, protocol), {})[entry.objective.name] = entry

    def contrast(self, cell: Cell, metric: str, candidate: str = "emo", baseline: str = "mle") -> Contrast | None:
        """Return a difference within a condition, or None if one side was not measured."""
        found = self.cells.get(cell, {})
        if candidate not in found or baseline not in found:
            return None
        return self._contrast(found[candidate], found[baseline], f"{cell[0]}/{metric}")

    def mean_difference(self, metric: str) -> Difference:
        """Return the difference of EMO's and MLE's means over the corpora, in the main conditions."""
        series = series_reader(self._examples)
        sides = []
        for name in ("emo", "mle"):
            entries = [(task, self.cells[main_cell(self, task)[0]][name]) for task in TASKS]
            sides.append([row for task, entry in entries if (row := series(entry, f"{task}/{metric}"))])
        found = compare_rows(*sides)
        assert isinstance(found, Difference), found
        return found

    def documents(self, entry: Entry, metric: str) -> str:
        """Return how many documents a score is of, and how many of equal weight they are worth where that is fewer."""
        series = series_reader(self._examples)(entry, metric)
        examples = None if series is None else next(iter((series.examples or {}).values()), None)
        if examples is None:
            return "–"
        worth = round(effective(examples))
        return f"{len(examples):,}" if worth > 0.95 * len(examples) else f"{len(examples):,}, worth {worth:,}"

    def answer_contrast(self, cell: tuple[str, str], task: str, baseline: str) -> Contrast | None:
        """Return the difference of EMO's accuracy, or None if one side was not measured."""
        found = self.answers.get(cell, {})
        if "emo" not in found or baseline not in found:
            return None
        return self._contrast(found["emo"], found[baseline], f"{task}/accuracy")

    def _contrast(self, candidate: Entry, baseline: Entry, metric: str) -> Contrast | None:
        (one,) = compare(baseline, [candidate], self._examples, metrics=[metric]).contrasts or [None]
        return one

    def gradient_norm(self, entry: Entry) -> float:
        """Return the norm of the gradient before it is clipped: its mean over steps and seeds."""
        files = [find_file(file, self._runs, [self._board]) for run in entry.runs for file in run.curves]
        return mean(value for file in files if file for value in read_curves(file.parent).curves["grad_norm"].values())

    def changes(self) -> Iterator[tuple[str, Cell]]:
        """Yield the conditions of WikiText-2 with what each changes: the number of texts, then others in order."""
        order = [re.compile(re.sub(r"\\{.*?\\}", ".+", re.escape(text))) for text in WORDS.values()]
        counts, others = [], []
        for cell in self.cells:
            named = [words for words in cell[1] if words != _texts(FEWER)]
            if cell[0] == "wikitext2" and not named:
                counts.append((cell[1][0] if cell[1] else _texts(LIMIT), cell))
            elif cell[0] == "wikitext2":
                others.append((", ".join(named), cell))

        def place(one: tuple[str, Cell]) -> tuple[int, str]:
            return next((i for i, pattern in enumerate(order) if pattern.fullmatch(one[0])), len(order)), one[0]

        yield from sorted(counts, key=lambda one: -int(one[0].partition(" ")[0].replace(",", "")))
        yield from sorted(others, key=place)


def _texts(number: int) -> str:
    return WORDS["limit"].format(number)


def value(entry: Entry, task: str, metric: str) -> str:
    """Return a mean, with its standard deviation over seeds if it has one."""
    _, factor, places = COLUMNS[metric]
    summary = entry.metrics.get(f"{task}/{metric}")
    if summary is None:
        return "–"
    spread = "" if summary.std is None else f" ± {summary.std * factor:.{places}f}"
    return f"{summary.mean * factor:,.{places}f}{spread}"


def bounds(one: Contrast | None) -> tuple[float, float, float] | None:
    """Return a difference and its 95 % interval: over seeds and texts, of one seed over texts alone."""
    interval = one and (one.ci95 or next((test.ci95 for _, test in one.within), None))
    if one is None or interval is None:
        return None
    factor = 100 if one.unit == "fraction" else 1
    return (factor * one.effect, factor * interval[0], factor * interval[1])


def difference(one: Contrast | None) -> str:
    if one is None:
        return "–"
    found = bounds(one)
    if found is not None:
        return f"{found[0]:+.1f} [{found[1]:+.1f}, {found[2]:+.1f}]"
    factor = 100 if one.unit == "fraction" else 1
    return f"{factor * one.effect:+.1f}" if one.effect else "no example differs"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)])


def main_cell(study: Study, task: str) -> tuple[Cell, int]:
    """Return the condition of a corpus that has both objectives with most texts, and their number."""
    for limit, words in ((LIMIT, ()), (FEWER, (_texts(FEWER),))):
        if {"mle", "emo"} <= study.cells.get((task, words), {}).keys():
            return (task, words), limit
    return (task, ()), LIMIT


def main_table(study: Study) -> str:
    rows = []
    for task in TASKS:
        cell, texts = main_cell(study, task)
        found = study.cells.get(cell, {})
        for name in ("pretrained", "mle", "emo"):
            if name in found:
                values = (value(found[name], task, metric) for metric in FAST)
                documents = study.documents(found[name], f"{task}/mauve")
                rows.append([CORPORA[task], f"{texts:,}", documents, f"`{name}`", *values])
    return table(["corpus", "texts", "documents", "objective", *(COLUMNS[metric][0] for metric in FAST)], rows)


def differences_table(study: Study) -> str:
    """Return EMO minus MLE in the main conditions, with the verdicts of `emobench compare`."""
    rows = []
    for task in TASKS:
        for metric, heading in {**MEANS, "ppl_test": COLUMNS["ppl_test"][0]}.items():
            one = study.contrast(main_cell(study, task)[0], metric)
            if one is not None:
                rows.append([CORPORA[task], heading, *judged(one)])
    return table(["corpus", "metric", "EMO minus MLE, 95 % interval", "p", "detectable", "verdict"], rows)


def endpoint_table(study: Study) -> str:
    """Return EMO minus MLE of the mean over the corpora: of MAUVE, the primary endpoint, and of the three ROUGE.

    p of MAUVE is that of one test; those of ROUGE are adjusted for three (Holm).
    """
    found = {metric: study.mean_difference(metric) for metric in MEANS}
    p_values = [one.p for one in found.values()]
    rows = []
    for (metric, one), p in zip(found.items(), [p_values[0], *holm(p_values[1:])], strict=True):
        assert one.ci95 is not None
        low, high = one.ci95
        verdict = "tied" if p > ALPHA else "better" if one.effect > 0 else "worse"
        interval = f"{100 * one.effect:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"
        rows.append([MEANS[metric], interval, _p(p), verdict])
    return table(["mean over the three corpora", "EMO minus MLE, 95 % interval", "p", "verdict"], rows)


def _p(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def judged(one: Contrast) -> list[str]:
    """Return the difference, p, what is detectable and the verdict; perplexities in percent, others in points."""
    verdict = one.verdict or "–"
    if one.p_holm is None or one.ci95 is None:
        effect = f"{100 * math.expm1(one.effect):+.1f} %" if one.log_scale else f"{100 * one.effect:+.2f}"
        return [effect, "–", "–", verdict]
    if one.log_scale:
        effect, low, high, detectable = (100 * math.expm1(x) for x in (one.effect, *one.ci95, one.detectable or 0.0))
        return [f"{effect:+.1f} % [{low:+.1f}, {high:+.1f}]", _p(one.p_holm), f"{detectable:.1f} %", verdict]
    effect, low, high, detectable = (100 * x for x in (one.effect, *one.ci95, one.detectable or 0.0))
    return [f"{effect:+.2f} [{low:+.2f}, {high:+.2f}]", _p(one.p_holm), f"{detectable:.2f}", verdict]


def command(study: Study) -> str:
    """Return the command whose table has the differences of the main condition."""
    found = study.cells[("wikitext2", ())]
    ids = " ".join(found[name].id for name in ("emo", "mle"))
    return f"```\nemobench compare {ids} --leaderboard studies:smollm2\n```"


def objectives_table(study: Study) -> str:
    found = study.cells.get(("wikitext2", (_texts(FEWER),)), {})
    rows = []
    for name in (*MAIN, *OTHERS):
        if name in found:
            values = (value(found[name], "wikitext2", metric) for metric in FAST)
            rows.append([f"`{name}`", *values, f"{study.gradient_norm(found[name]):.2f}"])
    headings = (COLUMNS[metric][0] for metric in FAST)
    return table([f"WikiText-2, {_texts(FEWER)}", *headings, "gradient's norm"], rows)


def terms_table(study: Study) -> str:
    """Return the values of EMO with other weights of DEMD and other costs."""
    found = study.cells.get(("wikitext2", (_texts(FEWER),)), {})
    names = [name for name in ("pretrained", *MAIN) if name in found]
    names += sorted(found.keys() - {*names, *OTHERS})
    rows = [[f"`{name}`", *(value(found[name], "wikitext2", metric) for metric in COLUMNS)] for name in names]
    return table([f"WikiText-2, {_texts(FEWER)}", *(heading for heading, _, _ in COLUMNS.values())], rows)


def changes_table(study: Study) -> str:
    rows = [
        [words, *(value(study.cells[cell][name], cell[0], "mauve") for name in ("mle", "emo")),
         difference(study.contrast(cell, "mauve"))]
        for words, cell in study.changes()
        if {"mle", "emo"} <= study.cells[cell].keys()
    ]  # fmt: skip
    return table(["WikiText-2", "MLE", "EMO", "difference, 95 % interval"], rows)


def answers_table(study: Study) -> str:
    """Return the accuracies of 8-shot answers, and their mean."""
    rows = []
    for (model, protocol), found in _answers(study):
        for name in ("pretrained", *MAIN):
            if name in found:
                values = [found[name].metrics[f"{task}/accuracy"].mean for task in LABELLED]
                shown = (f"{100 * value:.1f}" for value in (*values, mean(values)))
                rows.append([MODELS[model], protocol, f"`{name}`", *shown])
    return table(["model", "protocol", "objective", *LABELLED.values(), "mean"], rows)


def answer_differences_table(study: Study) -> str:
    """Return EMO's accuracy minus that of MLE and of the pre-trained model."""
    rows = [
        [MODELS[cell[0]], cell[1], f"EMO minus {words}",
         *(difference(study.answer_contrast(cell, task, baseline)) for task in LABELLED)]
        for cell, found in _answers(study)
        for baseline, words in (("mle", "MLE"), ("pretrained", "pre-trained"))
        if {"emo", baseline} <= found.keys()
    ]  # fmt: skip
    return table(["model", "protocol", "accuracy (%)", *LABELLED.values()], rows)


def _answers(study: Study) -> list[tuple[tuple[str, str], dict[str, Entry]]]:
    keys = [(model, protocol) for model in MODELS for protocol in ("paper", "official-code")]
    return [(key, study.answers[key]) for key in keys if key in study.answers]


def row(name: str, one: Contrast | None) -> dict[str, Any] | None:
    found = bounds(one)
    if found is None or one is None:
        return None
    effect, low, high = found
    label = f"{one.seeds} seeds, {one.word}" if one.seeds else "1 seed"
    return {"metric": name, "effect": effect, "low": low, "high": high, "verdict": one.word or "none", "label": label}


def forest_picture(title: str, rows: Iterable[dict[str, Any] | None]) -> dict[str, Any]:
    kept = [one for one in rows if one is not None]
    unit = "percentage points of MAUVE"
    return {
        "background": "white",
        "padding": 12,
        "title": {"text": title, "anchor": "start", "fontSize": 13},
        "config": {"font": "DejaVu Sans, Arial, sans-serif", "view": {"stroke": None}},
        "width": 420,
        **forest(kept, unit, TEXT, LIGHT),
    }


def figures(study: Study) -> Iterator[tuple[str, dict[str, Any]]]:
    main = [row(CORPORA[task], study.contrast(main_cell(study, task)[0], "mauve")) for task in TASKS]
    yield "main", forest_picture("EMO minus MLE, MAUVE", main)
    rows = [row(words, study.contrast(cell, "mauve")) for words, cell in study.changes()]
    yield "changes", forest_picture("EMO minus MLE on WikiText-2: one setting changed", rows)
    yield "trade-off", picture(f"WikiText-2, {_texts(FEWER)}", list(trade_off(study)))


def trade_off(study: Study) -> Iterator[dict[str, Any]]:
    """Yield perplexity and entropy against MAUVE, of models that were trained differently and sampled alike."""
    trained = [
        (name, entry)
        for (task, words), found in study.cells.items()
        if task == "wikitext2" and _texts(FEWER) in words
        for name, entry in found.items()
        if changed(entry, task).keys() <= {*TRAINING, "limit"}
    ]
    names = ["pretrained", *MAIN, *sorted({name for name, _ in trained} - {"pretrained", *MAIN})]
    marks = {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1}}
    for metric in ("ppl_test", "entropy"):
        title = COLUMNS[metric][0].removesuffix(" ↓")
        points = [
            {"series": name, "x": entry.metrics[f"wikitext2/{metric}"].mean,
             "y": 100 * entry.metrics["wikitext2/mauve"].mean}
            for name, entry in trained
        ]  # fmt: skip
        encoding = {"x": axis("x", title), "y": axis("y", "MAUVE (%)")}
        yield panel(f"{title} against MAUVE", points, [{**marks, "encoding": encoding}], names)


def filled(text: str, name: str, content: str) -> str:
    """Return a page with the content between the two comments of a table; a page without them is as it was."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text:
        return text
    start, stop = text.index(begin) + len(begin), text.index(end)
    return f"{text[:start]}\n{content}\n{text[stop:]}"


TABLES = {
    "endpoint": endpoint_table,
    "main": main_table,
    "command": command,
    "differences": differences_table,
    "changes": changes_table,
    "terms": terms_table,
    "objectives": objectives_table,
    "answers": answers_table,
    "answer-differences": answer_differences_table,
}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaderboard", type=Path, default=ROOT / "leaderboards" / "studies" / "smollm2")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence.md")
    given = parser.parse_args(argv)
    study = Study(given.leaderboard, given.runs)
    text = given.out.read_text(encoding="utf-8")
    for name, made in TABLES.items():
        text = filled(text, name, made(study))
    given.out.write_text(text, encoding="utf-8")
    drawings = [(name, drawn) for name, drawn in figures(study) if f"evidence/{name}.svg" in text]
    for name, drawn in drawings:
        write_picture(drawn, given.out.with_name("evidence") / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
