"""`emobench leaderboard show`, from a board on disk to what is printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.cli.leaderboard.show import print_board
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.scores import Score

TASKS = ("sst2", "mmlu")
LEVELS = {"mle": 0.5, "emo": 0.6, "tailr": 0.4}


def metrics(level: float) -> dict[str, Any]:
    """Return the accuracies of each task over three seeds."""

    def summary(shift: float) -> Any:
        values = [level + shift + noise for noise in (0.0, 0.001, 0.003)]
        given = {"n": 9, "higher_is_better": True, "unit": "fraction", "aggregate": "corpus"}
        return to_plain(summarise([Score(value=value, **given) for value in values]))

    return {f"{task}/accuracy": summary(0.001 * place) for place, task in enumerate(TASKS)}


@pytest.fixture
def show(command: Callable[..., Any], tmp_path: Path, entry_of: Callable[..., Entry]) -> Callable[..., Any]:
    board = Leaderboard(tmp_path)
    for model, shift in (("gpt2", 0.0), ("opt-125m", 0.1)):
        for name, level in LEVELS.items():
            board.append(entry_of(name, metrics=metrics(level + shift), model={"name": model, "source": model}))

    def run(*arguments: object) -> Any:
        return command("leaderboard", "show", "--leaderboard", tmp_path, *arguments)

    return run


def names(done: Any) -> list[list[str]]:
    """Return the objectives of each group, in the order shown."""
    assert (done.code, done.err) == (0, ""), done.err
    return [[e["objective"]["name"] for e in group["entries"]] for group in done.json["groups"]]


def test_filters_keep_what_is_meant(show: Callable[..., Any]) -> None:
    assert [sorted(group) for group in names(show("--json", "--all"))] == [["emo", "mle", "tailr"]] * 2
    (group,) = names(show("--json", "--model", "gpt2", "--objective", "mle", "--objective", "emo"))
    assert sorted(group) == ["emo", "mle"]
    assert names(show("--json", "--model", "gpt2", "--objective", "emo", "--baseline", "mle")) == [["mle", "emo"]]
    columns = show("--metric", "sst2/*", "--model", "gpt2").out
    assert "accuracy" in columns
    assert "50.1 ± 0.2" in columns  # (50 + 50.1 + 50.3) / 3
    assert "mmlu" not in columns


def test_unknown_names_and_an_absent_board_are_the_users_errors(show: Callable[..., Any], tmp_path: Path) -> None:
    for arguments, told in (
        (("--model", "gpt"), "There is no entry of the model 'gpt'; did you mean 'gpt2'?"),
        (("--objective", "eno"), "did you mean 'emo'?"),
        (("--suite", "nlu@2"), "did you mean 'nlu@1'?"),
        (("--metric", "sst/accuracy"), "did you mean 'sst2/accuracy'?"),
        (("--sort", "acuracy"), "did you mean 'accuracy'?"),
        (("--baseline", "mlx"), "There is no objective to be the baseline 'mlx'; did you mean 'mle'?"),
        (("--kind", "published"), "--leaderboard published:"),
        (("--since", "soon"), "expected a date such as"),
        (("--leaderboard", tmp_path / "none"), f"There is no leaderboard {tmp_path / 'none'}"),
    ):
        show(*arguments).refused(told)


def test_a_board_without_entries_says_the_same_everywhere(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for said in ("There is no leaderboard leaderboards/measured: ", "leaderboards/measured has no entry yet: "):
        told = f"{said}`emobench run --leaderboard leaderboards/measured` records a first entry: a tiny model"
        assert command("leaderboard", "show", "--metric", "mauv").ok().out.startswith(told)
        command("compare", "emo", "mle").refused(told)
        Path("leaderboards/measured").mkdir(parents=True, exist_ok=True)


def test_terminal_markdown_and_json_say_the_same(show: Callable[..., Any]) -> None:
    """Means over tasks: 50.18 for mle, 60.18 for emo; 10 points apart at every seed but for noise that is the same."""
    given = ("--model", "gpt2", "--baseline", "mle")
    (group,) = show("--json", *given).json["groups"]
    by_id = {e["id"]: e["objective"]["name"] for e in group["entries"]}
    effects = {by_id[i]: {m: d["effect"] for m, d in row.items()} for i, row in group["differences"].items()}
    assert effects["emo"] == pytest.approx({"sst2/accuracy": 0.1, "mmlu/accuracy": 0.1, "mean": 0.1})
    assert effects["tailr"] == pytest.approx({"sst2/accuracy": -0.1, "mmlu/accuracy": -0.1, "mean": -0.1})
    shown = [line.split() for line in show(*given).out.splitlines()]
    marked = [line.replace("|", " ").replace("*", "").split() for line in show("--markdown", *given).out.splitlines()]
    latex = [
        line.replace("&", " ").replace("\\textbf{", " ").split() for line in show("--latex", *given).out.splitlines()
    ]
    for lines in (shown, marked, latex):
        (row,) = [line for line in lines if line[:1] == ["emo"]]
        assert [word.rstrip("*}") for word in row if word.startswith("+")] == ["+10.0", "+10.0", "+10.0"]
    show("--latex", "--json", *given).refused("--latex")


def test_more_entries_than_rows_are_counted(show: Callable[..., Any]) -> None:
    for given in (("--rows", 3, "--all"), ()):
        done = show(*given)
        assert done.out.count("nlu v1 · ") == 1
        assert "1 older group is not shown" in done.out
        assert show(*given, "--json").json["left_out"] == 3
    assert "not part of its marks and ranks: 1." in show("--rows", 2).out
    assert "1 older group" in show("--markdown").out
    whole = show("--rows", 6, "--all", "--json").json
    assert (len(whole["groups"]), whole["left_out"]) == (2, 0)


def test_own_rows_stand_first(show: Callable[..., Any], tmp_path: Path, capsys: Any) -> None:
    mle = next(e for e in Leaderboard(tmp_path).entries() if e.objective.name == "mle" and e.model.name == "gpt2")
    print_board(tmp_path, tmp_path / "runs", around={mle.id})
    out = capsys.readouterr().out
    rows = out[out.index("───") :].splitlines()[1:4]
    assert [line[:6].rstrip() for line in rows] == ["mle", "emo", "tailr"]
    assert "opt-125m" not in out
