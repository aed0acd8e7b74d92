"""What is exported is read by the tools that it is for, with the entry's numbers."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from emobench.exchange.tables import card_name, metric_rows, model_card, to_csv
from emobench.leaderboard.entry import Entry
from emobench.report.tables import csv_text

MakeEntry = Callable[..., Entry]

HOSTILE = "=cmd|' /C calc'!A0 \x1b[31m<b>|`x`\n---\nname: y"


def summary(mean: float, **changes: Any) -> dict[str, Any]:
    given = {"mean": mean, "std": None, "values": [mean], "n": 100, "ci95": None, "ci95_of": None}
    return {**given, "higher_is_better": True, "unit": "fraction", "flags": [], **changes}


@pytest.fixture
def entry(entry_of: MakeEntry) -> MakeEntry:
    """Return a function that makes an entry of which every field says something."""
    values = [0.90, 0.92, 0.94]
    metrics = {
        "sst2/accuracy": summary(0.92, std=0.02, values=values, n=1821, ci95=[0.88, 0.96], ci95_of="seeds and items"),
        "lm/ppl_test": summary(30.5, std=0.5, values=[30.0, 30.5, 31.0], unit="perplexity", higher_is_better=False),
    }
    given = {
        "protocols": {"sst2": "paper@3fa9c1", "lm": "paper@77aa00", "mmlu": "paper@aa0000"},
        "model": {"name": "gpt2", "source": "openai-community/gpt2", "revision": "607a30d", "parameters": 124439808},
        "objective": {"name": "tailr", "version": "1", "params": {"gamma": 0.2}, "source_sha256": "0" * 64},
        "recipe": {"name": "lora", "dtype": "float32"},
        "metrics": metrics,
        "missing": {"mmlu/accuracy": "hendrycks_test is not at hand"},
        "runs": [{"seed": seed, "key": f"k{seed}"} for seed in (0, 1, 2)],
        "cost": {"evaluate_seconds": 2.5},
        "source": {"command": "emobench run", "cite": None},
        "provenance": {
            "commit": "c0ffee",
            "packages": {"torch": "2.13.0", "transformers": "5.23.0"},
            "hardware": "2 cores",
            "data": {"sst2.test": "sha256:aa (local)"},
            "created": "2026-01-31T12:00:00+02:00",
        },
    }
    return lambda **changes: entry_of(**{**given, **changes})


@pytest.fixture
def hostile(entry: MakeEntry) -> Entry:
    return entry(
        model={"name": HOSTILE, "source": HOSTILE},
        metrics={"sst2/=1|2<i>": summary(0.5)},
        missing={"mmlu/accuracy": HOSTILE},
        runs=[],
    )


def test_a_model_card_is_read_back_by_huggingface_hub(entry: MakeEntry) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(model_card(entry()))
    assert card.data.model_name == "gpt2-tailr(gamma=0.2)"  # pyright: ignore
    results = {result.metric_name: result for result in card.data.eval_results}  # pyright: ignore
    assert results.keys() == {"sst2/accuracy", "lm/ppl_test"}
    found = results["sst2/accuracy"]
    assert (found.metric_value, found.metric_type, found.dataset_type) == (0.92, "accuracy", "sst2")
    of_seeds = {"seeds": 3, "ci95": [0.88, 0.96], "ci95_of": "seeds and items"}
    assert found.metric_args == {"unit": "fraction", "n": 1821, "std": 0.02, **of_seeds}
    assert results["lm/ppl_test"].metric_args == {"unit": "perplexity", "seeds": 3, "n": 100, "std": 0.5}
    assert "92.0 \\[88.0, 96.0\\]" in card.text
    assert "hendrycks\\_test is not at hand" in card.text


def test_a_hostile_name_stays_inside_its_field(hostile: Entry) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard(model_card(hostile))
    assert card_name(hostile) == f"=cmd__C__calc__A0__31m__b__x__---__name__y-tailr(gamma=0.2)__{hostile.id[:6]}.md"
    assert card.data.to_dict().keys() == {"tags", "model-index"}
    assert card.data.model_name.startswith("=cmd|' /C calc'!A0")  # pyright: ignore
    assert "\x1b" not in card.content
    assert "<b>" not in card.text


FORMULAS = ["=1+1", "+1", "-1", "@x", "＝1", "＋1", "－1", "＠x", " =1", "\t=1", "\r=1", "\n=1"]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("of", [str, lambda text: [text, "b"], lambda text: (text,)], ids=["text", "list", "tuple"])
def test_no_cell_of_csv_is_a_formula(text: str, of: Callable[[str], Any]) -> None:
    ((cell,),) = list(csv.reader(io.StringIO(csv_text(["a"], [{"a": of(text)}]), newline="")))[1:]
    assert not unicodedata.normalize("NFKC", cell).lstrip().startswith(("=", "+", "-", "@"))
    assert cell.endswith((text.strip()[-1], "b"))


@pytest.mark.parametrize("breaks", ["\r", "\n", "\r\n", "\x0b", "\x0c", "\x85", "\u2028"])
@pytest.mark.parametrize("of", [str, lambda text: [text], lambda text: (1, text)], ids=["text", "list", "tuple"])
def test_no_cell_of_csv_splits_a_row(breaks: str, of: Callable[[str], Any]) -> None:
    text = csv_text(["a", "b"], [{"a": of(f"x{breaks}y"), "b": 1}, {"a": 2, "b": 3}])
    assert [len(row) for row in csv.reader(text.splitlines())] == [2, 2, 2]


def test_numbers_stay_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(["a", "b"], [{"a": -0.5, "b": [-0.5, 2.0]}]))))
    assert rows == [{"a": "-0.5", "b": "-0.5 2.0"}]


def test_flags_of_an_entry_are_no_formula(entry: MakeEntry) -> None:
    flagged = entry(metrics={"sst2/accuracy": summary(0.5, flags=["=1+1", "a\rb"])}, runs=[])
    (row, _) = csv.DictReader(io.StringIO(to_csv([flagged]), newline=""))
    assert row["flags"].startswith("'=1+1 a")


def test_tables_have_a_line_for_each_entry_and_metric(entry: MakeEntry, hostile: Entry) -> None:
    lines = list(metric_rows([entry(), hostile]))
    assert [(line["task"], line["metric"], line["mean"]) for line in lines] == [
        ("sst2", "accuracy", 0.92),
        ("lm", "ppl_test", 30.5),
        ("mmlu", "accuracy", None),
        ("sst2", "=1|2<i>", 0.5),
        ("mmlu", "accuracy", None),
    ]
    assert lines[0]["values"] == [0.90, 0.92, 0.94]
    assert lines[2]["missing"] == "hendrycks_test is not at hand"
    assert lines[3]["model"] == HOSTILE
    rows = list(csv.DictReader(io.StringIO(to_csv([entry(), hostile]))))
    assert list(rows[0]) == list(lines[0])
    assert [row["mean"] for row in rows] == ["0.92", "30.5", "", "0.5", ""]
    assert (rows[0]["ci95_low"], rows[0]["ci95_high"], rows[0]["seeds"]) == ("0.88", "0.96", "0 1 2")
    assert rows[0]["objective"] == "tailr(gamma=0.2)"
    # A spreadsheet takes it as text, and a terminal shows it as it is.
    assert rows[3]["model"].startswith("'=cmd")
    assert rows[3]["metric"].startswith("'=1")
    assert "\x1b" not in to_csv([hostile])
