"""`emobench figures`: pictures beside an entry, which a board does not take for entries."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.query.rows import select
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify

DISTANCES = {
    f"{corpus}/{name}_cross_entropy": {
        "mean": value,
        "std": None,
        "values": [value],
        "n": 10,
        "ci95": [value - 0.1, value + 0.1],
        "ci95_of": "items",
        "higher_is_better": False,
        "unit": "nats",
    }
    for corpus in ("wikitext2", "webtext")
    for name, value in (("forward", 3.0), ("reverse", 4.0))
}


def test_pictures_lie_beside_the_entry_and_disturb_no_board(written: Any, tmp_path: Path) -> None:
    shutil.copytree(written.root, tmp_path / "board")
    done = written.command(
        "figures", "mle", "pretrained", "--leaderboard", tmp_path / "board", "--runs", written.runs
    ).ok()
    folder = tmp_path / "board/lm-quick-v1/.figures" / f"{written.mle['id'][:6]}-{written.pretrained['id'][:6]}"
    names = ["divergence-curves", "lengths", "entropies"]
    files = [folder / f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert done.out.splitlines() == list(map(str, files))
    assert done.err == ""
    assert sorted(folder.iterdir()) == sorted(files)
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "mle" in (folder / f"{name}.svg").read_text()
    board = Leaderboard(tmp_path / "board")
    assert verify(board, written.runs) == (2, [])
    assert {row.id for row in board.rows()} == {written.mle["id"], written.pretrained["id"]}
    assert board.problems == []


def test_the_drawn_numbers_are_those_of_the_runs(written: Any) -> None:
    from emobench.runs.inspect.figures import Files, _curves, _entropies, _lengths

    (entry,) = select(written.mle["id"], written.root)
    files = Files(written.runs)
    curves = list(_curves("mle", entry, files))
    assert len(curves) == 2 * 2 * 2  # training seeds, sampling runs, k-means seeds
    mean = sum(curve["mauve"] for curve in curves) / len(curves)
    assert mean == pytest.approx(written.mle["metrics"]["lm-quick/mauve"]["mean"])
    human, generated = _lengths("mle", entry, files)
    assert (human["series"], generated["series"]) == ("human", "mle")
    assert (len(human["values"]), len(generated["values"])) == (24, 24 * 2 * 2)
    assert set(human["values"]) == {8}
    (entropies,) = _entropies("mle", entry, files)
    assert len(entropies["values"]) == 2 * written.mle["metrics"]["lm-quick/entropy"]["n"]


def test_the_scatter_needs_no_runs(tmp_path: Path, command: Any, entry_of: Any) -> None:
    for name in ("mle", "emo"):
        Leaderboard(tmp_path / "b").append(entry_of(name, metrics=DISTANCES, runs=[{"seed": 0, "key": "0" * 16}]))
    out = ("--leaderboard", tmp_path / "b", "--out", tmp_path / "out")
    command("figures", "emo", "mle", *out).ok()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cross-entropies.png", "cross-entropies.svg"]
    shown = (tmp_path / "out/cross-entropies.svg").read_text()
    assert "webtext" in shown
    assert "forward: −Σ P log Q (nats per token)" in shown
    command("figures", "emo", "mle", *out[:2], "--out", tmp_path / "all.pdf").ok()
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")


def test_files_that_are_gone_cost_no_other_picture_and_nothing_at_all_is_an_error(
    written: Any, tmp_path: Path, entry_of: Any
) -> None:
    shutil.copytree(written.runs / "generate", tmp_path / "generate")
    given = ("--leaderboard", written.root, "--runs", tmp_path, "--out", tmp_path / "out")
    done = written.command("figures", "mle", *given).ok()
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"lengths"}
    assert done.err.count("not drawn: ") == 2
    assert "--runs DIR" in done.err
    Leaderboard(tmp_path / "b").append(entry_of("tailr", runs=[{"seed": 0, "key": "0" * 16}]))
    written.command("figures", "tailr", "--leaderboard", tmp_path / "b").refused(
        "There is nothing to draw of tailr. They have no texts"
    )
