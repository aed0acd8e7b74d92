"""Older entry files are read as entries of today, keep their ids, and are never written again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from emobench.leaderboard.schema.migrations import DECLARED, migrate

from emobench.core.errors import ConfigError, StorageError
from emobench.core.settings import to_plain
from emobench.leaderboard.comparable import differences, groups
from emobench.leaderboard.entry import SCHEMA_VERSION, Model, new_entry, read_entry
from emobench.leaderboard.store import Leaderboard
from emobench.registry import find_suite, suite_names
from emobench.tasks.families import OTHERS

SCHEMA_1 = Path(__file__).parent / "schema_1"
"""A board with one entry that was recorded under schema 1, when a run named its per-example results only."""
PUBLISHED = Path(__file__).parents[4] / "leaderboards" / "published"
STUDIES = PUBLISHED.with_name("studies")


@pytest.fixture
def path() -> Path:
    (found,) = SCHEMA_1.glob("*/*.json")
    return found


@pytest.fixture
def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_an_entry_of_schema_1_is_read_and_keeps_the_id_of_what_is_written(path: Path, written: dict[str, Any]) -> None:
    (entry,) = Leaderboard(SCHEMA_1).entries()
    content = {key: value for key, value in written.items() if key != "id"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert entry.id == path.stem == hashlib.sha256(text.encode()).hexdigest()[:12]

    runs = [{**run, "curves": [], "samples": []} for run in written["runs"]]
    metrics = {key: {**metric, "units": None, "components": {}} for key, metric in written["metrics"].items()}
    roles = {"primary": "oracle-language/total_variation", "families": to_plain(entry.families)}
    model = {**written["model"], "pretraining": None}
    now = {
        **written,
        "schema": SCHEMA_VERSION,
        "changes": {},
        "model": model,
        "runs": runs,
        "metrics": metrics,
        **roles,
    }
    assert to_plain(entry) == now
    assert entry.metrics["oracle-language/ppl_oracle"].values == (
        19.183229998525807,
        16.46201883714326,
        17.1422844403637,
    )


def test_the_published_entries_of_schema_2_keep_their_ids_and_have_no_components() -> None:
    entries = Leaderboard(PUBLISHED).entries()
    assert {entry.id for entry in entries} == {path.stem for path in PUBLISHED.glob("*/*.json")}
    assert {json.loads(path.read_text())["schema"] for path in PUBLISHED.glob("*/*.json")} == {2}
    assert not any(metric.components for entry in entries for metric in entry.metrics.values())
    assert {metric.rpartition("/")[2]: family for e in entries for metric, family in e.families.items()}["mauve"]


def test_an_older_entry_has_the_roles_that_its_suite_declared(written: dict[str, Any]) -> None:
    entry = read_entry(written, "file")
    assert entry.primary == "oracle-language/total_variation"
    assert set(entry.families.values()) == {OTHERS}
    none = {f"oracle-language/{name}" for name in ("entropy", "forward_kl", "mauve_star")}
    assert entry.metrics.keys() - entry.families.keys() == none
    for change in ({"suite": {"name": "mine", "version": 1}}, {"suite": {"name": "oracle-language", "version": 2}}):
        assert migrate({**written, **change}, SCHEMA_VERSION, "file")["primary"] is None


def test_older_entries_get_what_the_suites_declare_today() -> None:
    suites = {name: find_suite(name) for name in suite_names() if name in DECLARED}
    assert {name: suite.primary for name, suite in suites.items()} == DECLARED
    assert {s.version for s in suites.values()} == {1}


@pytest.mark.parametrize("schema", [1, 3, 4])
@pytest.mark.parametrize(
    ("metrics", "missing", "primary"),
    [
        (("ptb/mauve", "ptb/ppl_test"), (), "ptb/mauve"),
        (("ptb/mauve", "webtext/mauve", "webtext/rouge1"), (), "mean/mauve"),
        (("ptb/mauve", "webtext/ppl_test"), ("webtext/mauve",), "mean/mauve"),  # no result decides what the endpoint is
        (("ptb/ppl_test",), ("ptb/mauve",), "ptb/mauve"),
        (("ptb/mauve", "webtext/ppl_test"), (), "ptb/mauve"),  # one task alone has the metric
        (("ptb/ppl_test", "ptb/mauve_star"), (), None),
    ],
)
def test_the_endpoint_of_an_older_entry_is_over_the_tasks_of_its_run(
    written: dict[str, Any], schema: int, metrics: Sequence[str], missing: Sequence[str], primary: str | None
) -> None:
    some = next(iter(written["metrics"].values()))
    plain = {**written, "schema": schema, "suite": {"name": "generation", "version": 1}, "primary": None}
    plain |= {"metrics": dict.fromkeys(metrics, some), "missing": dict.fromkeys(missing, "too short")}
    assert migrate(plain, SCHEMA_VERSION, "file")["primary"] == primary
    other = {**plain, "suite": {"name": "generation", "version": 2}}
    assert migrate(other, SCHEMA_VERSION, "file")["primary"] is None
    recorded = migrate({**plain, "primary": "ptb/ppl_test"}, SCHEMA_VERSION, "file")
    assert recorded["primary"] == "ptb/ppl_test"
    assert ("families" in recorded) == (schema < 4)


def test_the_shipped_entries_of_generation_have_the_endpoint_of_their_task() -> None:
    entries = [entry for entry in Leaderboard(STUDIES).entries() if entry.suite.name == "generation"]
    assert len(entries) >= 44
    for entry in entries:
        (task,) = entry.protocols
        assert entry.primary == f"{task}/mauve"
        assert json.loads((STUDIES / "generation-v1" / f"{entry.id}.json").read_text())["id"] == entry.id


def test_reading_leaves_the_file_and_the_given_data_alone(path: Path, written: dict[str, Any]) -> None:
    before, copy = path.read_bytes(), json.loads(json.dumps(written))
    read_entry(written, "file")
    assert written == copy
    Leaderboard(SCHEMA_1).rows()
    assert path.read_bytes() == before


def test_an_older_file_that_was_altered_is_refused(written: dict[str, Any]) -> None:
    written["metrics"]["oracle-language/ppl_oracle"]["n"] += 1
    with pytest.raises(ConfigError, match=r"file: `id` is .* the file was altered"):
        read_entry(written, "file")


def test_appending_a_migrated_entry_elsewhere_says_that_its_file_is_to_be_copied(path: Path, tmp_path: Path) -> None:
    (entry,) = Leaderboard(SCHEMA_1).entries()
    board = Leaderboard(tmp_path / "board")
    with pytest.raises(StorageError, match=rf"{entry.id} has the id .* older schema, copy that to {board.path(entry)}"):
        board.append(entry)
    assert not (tmp_path / "board").exists()

    target = board.path(entry)
    target.parent.mkdir(parents=True)
    shutil.copy(path, target)
    assert board.entries() == [entry]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (6, "file: `schema` is 6; this emobench reads 5 at most. Install a newer one"),
        (0, "file: `schema` is 0; expected 1 to 5"),
        (True, r"file: does not hold an entry \(`schema` is True; expected 5\)"),
        (1.0, r"`schema` is 1.0; expected 5"),
        ("1", r"`schema` is '1'; expected 5"),
        (None, r"`schema` is None; expected 5"),
        ([1] * 99, r"`schema` is \[1, [1, ]{20,60}; expected 5\)"),
    ],
)
def test_any_other_schema_gets_a_sentence(written: dict[str, Any], schema: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_entry({**written, "schema": schema}, "file")
    with pytest.raises(ConfigError, match="holds no mapping"):
        read_entry([1], "file")


def test_a_made_model_of_an_older_entry_is_no_model_of_today(written: dict[str, Any]) -> None:
    """Its revision is a hash of what it was made from, which says nothing of its weights."""
    old = read_entry(written, "file")
    assert old.model.name == "tiny-oracle"
    assert old.model.pretraining is None
    model = Model(**{**to_plain(old.model), "revision": f"sha256:{'1' * 64}"})
    new = new_entry({**{k: v for k, v in to_plain(old).items() if k not in ("id", "schema")}, "model": model})
    (told,) = differences(old, new)
    assert told.endswith("and tiny-oracle (sha256:111111), whose weights or tokenizers differ")
    assert len(groups([old, new])) == 2
