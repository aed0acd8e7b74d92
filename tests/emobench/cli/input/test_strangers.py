"""What a stranger's entry or plan names is never run: entries are pulled, and others may write plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError
from emobench.core.reading import names_path
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, entry_id, new_entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.store import Leaderboard
from emobench.registry import protocol_names, require_installed
from emobench.runs.planning.resolve import nested_rules

LOSS = """from pathlib import Path

from emobench import StatisticsObjective

Path(__file__).with_suffix(".ran").touch()


class Notes(StatisticsObjective):
    name = "notes"
    version = "1"

    def loss(self, s):
        return -s.log_prob
"""
TINY = ("--set", "recipe.max_length=32", "--set", "recipe.max_tokens=1024", "--limit", 8)
TEXTS = ("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8")
WRITTEN = (*("--suite", "lm-quick", "--seed", 3), *TINY, *TEXTS, "--set", "mauve.seeds=[0]", "--quiet", "--offline")
FILES = (
    "./theirs/notes.py:Notes",
    "theirs/notes.py:Notes",
    "./theirs/notes.py:Notes(gamma=1)",
    "0.5*./theirs/notes.py:Notes + 0.5*mle",
    "mle + linear(1, 0)*theirs/notes.py:Notes",
    " ./theirs/notes.py:Notes ",
)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of code that shows whether it was run, below the working folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "theirs" / "notes.py"
    path.parent.mkdir()
    path.write_text(LOSS)
    return path


def _ran(path: Path) -> bool:
    return path.with_suffix(".ran").exists()


def _write(board: Path, entry: Entry, **changes: Any) -> str:
    """Write an entry as another program would, with an id that fits, and return the id."""
    plain = {**to_plain(entry), **changes}
    plain["id"] = entry_id(plain)
    path = board / f"{entry.suite.name}-v{entry.suite.version}" / f"{plain['id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain))
    return str(plain["id"])


@pytest.mark.parametrize("name", FILES)
def test_no_command_runs_the_file_that_an_entry_names(
    name: str, theirs: Path, command: Callable[..., Any], entry_of: Callable[..., Entry], tmp_path: Path
) -> None:
    board = tmp_path / "board"
    good = entry_of("mle")
    Leaderboard(board).append(good)
    objective = {"name": name, "version": "1", "params": {}, "source_sha256": "0" * 64}
    bad = _write(board, good, objective=objective)
    command("leaderboard", "site", tmp_path / "site", "--leaderboard", board).ok()
    for given in ((), ("--dry-run",)):
        command("rerun", bad, "--leaderboard", board, "--offline", *given).refused()
    assert not _ran(theirs)
    verified = command("leaderboard", "verify", "--leaderboard", board)
    assert verified.code == 1
    assert bad in verified.out + verified.err


@pytest.mark.parametrize("name", FILES)
def test_an_entry_cannot_be_made_of_a_file(name: str, entry_of: Callable[..., Entry]) -> None:
    with pytest.raises(ConfigError):
        entry_of(objective={"name": name, "version": "1", "params": {}})
    with pytest.raises(ConfigError):
        require_installed(name)


@pytest.mark.parametrize("name", ["mle", "0.5*emo + 0.5*tailr(gamma=0.2)", "emo(cost=openai-community/gpt2)"])
def test_installed_objectives_are_used(name: str) -> None:
    require_installed(name)


@pytest.mark.parametrize(
    "name",
    [
        "notes",
        "emo(cost=/models/gpt2)",
        "emo(cost='~/gpt2')",
        "0.5*emo(cost=./gpt2) + 0.5*mle",
        "plugins/mine",
        "mle +",
    ],
)
def test_what_is_not_installed_or_names_a_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        require_installed(name)


@pytest.mark.parametrize(
    ("text", "is_path"),
    [
        *((text, True) for text in ("/models/gpt2", "~/gpt2", "~me/gpt2", "./gpt2", "../gpt2", "a/b.py:C", "here/x")),
        *((text, True) for text in ("fluency(judge=/m)", "f(judge='./m')", "f(a=1, b=~/m)", "C:\\models", "x\0y")),
        *((text, False) for text in ("openai/gpt2", "gpt2", "[/INST]", "### Response:", "f(judge=org/m)", "", "a / b")),
    ],
)
def test_what_may_be_a_path(text: str, is_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert names_path(text) is is_path


@pytest.fixture
def own(theirs: Path, command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path) -> Any:
    """An entry of the user's own file, and what runs a command on its board."""
    places = ("--data-dir", small_data, "--model", small_model, "--runs", "runs", "--leaderboard", "board")
    done = command("run", "--objective", "./theirs/notes.py:Notes", *WRITTEN, *places, "--json").ok()
    theirs.with_suffix(".ran").unlink()
    entry = select(done.json["entries"][0]["id"], tmp_path / "board")[0]

    def run(verb: str, *given: object) -> Any:
        return command(verb, *given, *places, "--offline")

    return entry, run


def test_an_own_file_is_run_again_only_when_the_user_names_it(own: Any, theirs: Path, tmp_path: Path) -> None:
    entry, run = own
    assert entry.objective.name == "notes"
    run("rerun", entry.id, "--dry-run").refused("notes", "--objective")
    assert not _ran(theirs)
    planned = run("rerun", entry.id, "--objective", "./theirs/notes.py:Notes", "--dry-run", "--reuse", "--json").ok()
    assert {line["state"] for line in planned.json["plan"]} == {"finished"}
    theirs.write_text(LOSS.replace("-s.log_prob", "-2 * s.log_prob"))
    again = run("rerun", entry.id, "--objective", "./theirs/notes.py:Notes", "--dry-run")
    again.refused(str(entry.objective.source_sha256)[:12])


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": {"corpus": "/etc/passwd"}},
        {"recipe": {"corpus": "./theirs"}},
        {"model": {"name": "theirs/model", "source": "hub"}},
        {"model": {"name": "./theirs/model", "source": "hub"}},
        {"objective": {"name": "emo", "version": "1", "params": {"cost": "./theirs/model"}}},
        {"objective": {"name": "emo", "version": "1", "params": {"cost": "theirs/model"}}},
        {"changes": {"lm-quick": {"mauve.featurizer": "/theirs/model"}}},
        {"changes": {"lm-quick": {"metrics": ["fluency(judge=./theirs/model)"]}}},
        {"suite": {"name": "lm-quick.yaml", "version": 1}},
    ],
)
def test_nothing_else_that_an_entry_names_here_is_followed(
    changes: dict[str, Any], theirs: Path, entry_of: Callable[..., Entry], tmp_path: Path
) -> None:
    from emobench.reproduce.rerun import request_of
    from emobench.runs.planning.request import Request

    (theirs.parent / "model").mkdir()
    (tmp_path / "lm-quick.yaml").write_text("name: lm-quick\nversion: 1\nruns: []\n")
    plain = to_plain(entry_of("mle", suite={"name": "lm-quick", "version": 1}))
    plain |= {"objective": {"name": "mle", "version": "1", "params": {}}}
    made = new_entry({key: value for key, value in {**plain, **changes}.items() if key not in ("id", "schema")})
    with pytest.raises(ConfigError):
        request_of(made, Request(suite=made.suite.name))


RULES = {
    "mauve.featurizer": ("theirs/model", {"mauve": {"featurizer": "./theirs/model"}}),
    "mauve": ({"featurizer": "/theirs/model"}, {"generation": {"mauve": {"featurizer": "gpt2"}}}),
    "oracle": ("./theirs/model", {"generation": {"oracle": "./theirs/model"}}),
    "metrics": (["fluency(judge=./theirs/model)"], {"generation": {"metrics": ["rouge"]}}),
}
"""Changed rule -> its value with a path in an entry, and settings that replace it."""


@pytest.mark.parametrize("rule", RULES)
def test_a_path_in_a_rule_that_the_user_gives_is_not_followed(
    rule: str, theirs: Path, entry_of: Callable[..., Entry]
) -> None:
    from emobench.reproduce.rerun import request_of
    from emobench.runs.planning.request import Request

    (theirs.parent / "model").mkdir()
    value, given = RULES[rule]
    plain = to_plain(entry_of("mle", suite={"name": "lm-quick", "version": 1}))
    plain |= {"objective": {"name": "mle", "version": "1", "params": {}}}

    def asked(changes: Any, settings: Any) -> Request:
        made = new_entry({**{k: v for k, v in plain.items() if k not in ("id", "schema")}, "changes": changes})
        return request_of(made, Request(suite="lm-quick", settings=settings))

    assert asked({"lm-quick": {rule: value}}, given).settings.items() >= given.items()
    others = {"generation": {"samples": 1}, "icl": {"shots": 1}}
    for settings in ({}, others):
        with pytest.raises(ConfigError, match="theirs/model"):
            asked({"lm-quick": {rule: value}}, settings)
    # Another rule with a path, and the same rule of a task that the suite has not.
    for changes in ({"lm-quick": {rule: value, "encoder": "/theirs/model"}}, {"another": {rule: value}}):
        with pytest.raises(ConfigError, match="theirs/model"):
            asked(changes, given)


@pytest.mark.parametrize("changes", [{"mauve": "x", "mauve.seeds": [0]}, {"mauve.seeds": [0], "mauve": "x"}])
def test_rules_within_a_rule_that_has_a_value_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="mauve"):
        nested_rules(changes, {})


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("lm-eval:x", {"include": "theirs"}),
        ("lm-eval:x", {"data": "theirs"}),
        ("instructions", {"judge.url": "https://theirs.example/v1"}),
        ("instructions", {"judge": {"url": "https://theirs.example/v1"}}),
    ],
)
def test_an_entry_gives_no_rule_that_is_the_users(task: str, changes: dict[str, Any], theirs: Path) -> None:
    from emobench.runs.planning.request import Recorded, Request
    from emobench.runs.planning.resolve import parts_of
    from emobench.tasks.spec import Suite, SuiteRun, short_name

    name, protocols = short_name(task), [] if ":" in task else protocol_names(task)
    suite = Suite(name="own", version=1, runs=(SuiteRun(recipe="lm-finetune", tasks=(task,)),))
    recorded = Recorded(
        protocols={name: f"{next(iter(protocols), 'lm-eval')}@1"}, changes={name: changes}, corpora={}, recipes=()
    )
    with pytest.raises(ConfigError, match=r"include|data|judge\.url"):
        parts_of(Request(suite="own", recorded=recorded), suite)


def test_a_planned_stage_runs_no_file_that_the_user_does_not_name(
    own: Any, theirs: Path, command: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    key = next((tmp_path / "runs" / "train").iterdir()).name
    facts = json.loads((tmp_path / "runs" / "train" / key / "stage.json").read_text())
    evil = tmp_path / "evil"
    (evil / "theirs").mkdir(parents=True)
    (evil / "theirs" / "notes.py").write_text(LOSS)
    request = {
        "suite": "lm-quick",
        "objectives": ["./theirs/notes.py:Notes"],
        "offline": True,
        "model": str(small_model),
    }
    planned = tmp_path / "other" / "planned" / f"{key}.json"
    planned.parent.mkdir(parents=True)

    def stage_run(folder: Path, asked: dict[str, Any], *given: object) -> Any:
        planned.write_text(
            json.dumps({"kind": "train", "facts": facts, "request": {**request, **asked}, "folder": str(folder)})
        )
        return command("stage", "run", key, "--runs", tmp_path / "other", *given)

    stage_run(tmp_path, {}).refused("notes.py", "--objective")
    stage_run(evil, {}, "--objective", "./theirs/notes.py:Notes").refused("notes.py")
    stage_run(tmp_path, {"objectives": ["mle + 0.5*./theirs/notes.py:Notes", "mle"]}).refused("notes.py")
    cost = "./theirs/notes.py:costs"
    stage_run(tmp_path, {"objectives": [f"emo(cost='{cost}')"]}).refused("notes.py")
    stage_run(tmp_path, {"objectives": ["emo"], "settings": {"objective": {"cost": cost}}}).refused("notes.py")
    stage_run(tmp_path, {"objectives": ["mle"], "trust_remote_code": True}).refused("--trust-remote-code")
    assert not _ran(theirs)
    assert not _ran(evil / "theirs" / "notes.py")
    stage_run(tmp_path, {}, "--objective", "./theirs/notes.py:Notes").refused()  # of other data: another key
    assert _ran(theirs)
