"""The door for plugins: built-ins and strangers come in the same way, and a broken one breaks only itself.

A stranger here is a real one: a folder with a module and the `dist-info` that an installer writes, on the path of a
process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench import registry
from emobench.core.errors import UnknownNameError
from emobench.registry import kind_of_name

OBJECTIVE = (Path(__file__).parent / "objective.py.tmpl").read_text()
"""A file with one objective, whose class gets its name by `format`."""

RETRIEVER = """
from dataclasses import dataclass
import numpy as np
import emobench

@dataclass(frozen=True)
class Last(emobench.Retriever):
    name = "last"
    step: int = 1

    def __post_init__(self):
        if self.step < 1:
            raise ValueError(f"`step` is {self.step}; expected at least 1.")

    def retrieve(self, pool, queries, count, context):
        return np.tile(np.arange(len(pool))[:: -self.step][:count], (len(queries), 1))

@emobench.hookimpl
def emobench_retrievers():
    return [Last]
"""

LOAD_LAST = """
from emobench.core import errors
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS
loaded = RETRIEVERS.load("last(step=2)")
found = loaded.plugin.retrieve(list("abcdefghij"), ["x", "y"], 3, None).tolist()
print(found, len(loaded.source_sha256), [n for n in RETRIEVERS.names() if n in "bm25 dense fixed random"])
try:
    RETRIEVERS.load("last(step=0)")
except errors.ConfigError as error:
    print(error)
"""


def install(site: Path, dist: str, modules: dict[str, str], points: dict[str, dict[str, str]]) -> None:
    """Write what an installer writes: modules, and a dist-info with entry points."""
    for name, text in modules.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    info = site / f"{dist.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    groups = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in points.items()]
    (info / "entry_points.txt").write_text("\n".join(groups))


def test_built_ins_come_in_by_the_door(tmp_path: Path) -> None:
    names = registry.objective_names()
    assert {"emo", "mixce", "mle", "tailr"} <= set(names)
    for name in ("emo", "mixce", "mle", "tailr"):
        loaded = registry.load_objective(name)
        assert loaded.name == name
        # The same code from another place, and with a comment.
        file, copy = Path(sys.modules[type(loaded.objective).__module__].__file__ or ""), tmp_path / f"{name}_copy.py"
        copy.write_text(file.read_text() + "\n# a copy\n")
        assert (
            registry.load_objective(f"{copy}:{type(loaded.objective).__name__}").source_sha256 == loaded.source_sha256
        )
    assert {"lm-quick", "oracle-language"} <= set(registry.suite_names())
    for suite in map(registry.find_suite, registry.suite_names()):
        for run in suite.runs:
            assert registry.find_recipe(run.recipe, run.settings).name == run.recipe
            for name in run.tasks:
                by_kind = kind_of_name(name)
                task = registry.find_task(name) if by_kind is None else by_kind[1]({})
                assert task.name == name.rpartition("/")[2]


@pytest.mark.parametrize(
    ("find", "given", "text"),
    [
        (registry.OBJECTIVES.class_of, "emoo", "There is no objective 'emoo'; did you mean 'emo'? Known: "),
        (registry.find_task, "lm-quik", "There is no task 'lm-quik'; did you mean 'lm-quick'?"),
        (registry.find_suite, "oracle-langage", "There is no suite 'oracle-langage'; did you mean 'oracle-language'?"),
        (registry.find_recipe, "lm-finetun", "There is no recipe 'lm-finetun'; did you mean 'lm-finetune'?"),
        (registry.find_suite, "../suites/lm-quick", "There is no suite '../suites/lm-quick'"),
    ],
)
def test_an_unknown_name_gets_the_nearest(find: object, given: str, text: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        find(given)  # type: ignore[operator]
    assert str(error.value).startswith(text)


def test_the_file_of_an_unknown_suite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    with pytest.raises(UnknownNameError, match=r"\./mine\.yaml"):
        registry.find_suite("mine")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of several strangers: one sound, the others each broken in their own way."""
    site = tmp_path_factory.mktemp("site")
    tasks = """
        from pathlib import Path
        import emobench

        @emobench.hookimpl
        def emobench_tasks():
            return Path(__file__).parent
    """
    suite = "name: theirs\nversion: 3\nmodel: gpt2\nruns:\n  - recipe: lm-finetune\n    tasks: [lm-quick]\n"
    install(
        site,
        "sound",
        {
            "sound_loss.py": OBJECTIVE.format(name="Sound"),
            "sound_tasks/__init__.py": tasks,
            "sound_tasks/suites/theirs.yaml": suite,
        },
        {"emobench.objectives": {"sound": "sound_loss"}, "emobench.tasks": {"sound": "sound_tasks"}},
    )
    broken = {
        "imports": "import a_module_that_is_not_there",
        "exits": "import sys\nsys.exit(0)",
        "syntax": "x = 1\ndef f(:\n",
        "nohook": "x = 1",
        "raises": "import emobench\n\n@emobench.hookimpl\ndef emobench_objectives():\n    return 1 / 0\n",
        "garbage": "import emobench\n\n@emobench.hookimpl\ndef emobench_objectives():\n    return ['emo']\n",
        "needs": OBJECTIVE.format(name="Needs").replace("    scale", "    needs = ['entropy']\n    scale"),
        "othername": OBJECTIVE.format(name="SomethingElse"),
        "abstract": OBJECTIVE.format(name="Abstract").replace("def loss", "def los"),
        "wronghook": "import emobench\n\n@emobench.hookimpl\ndef emobench_objective():\n    return []\n",
    }
    for name, text in broken.items():
        install(site, f"b-{name}", {f"b_{name}.py": text}, {"emobench.objectives": {name: f"b_{name}"}})
    install(site, "shots", {"last_shots.py": RETRIEVER}, {"emobench.components": {"last": "last_shots"}})
    broken = {
        "garbage-shots": RETRIEVER.replace("[Last]", "['last']"),
        "other-shots": RETRIEVER,
        "abstract-shots": RETRIEVER.replace("def retrieve", "def retriev").replace('"last"', '"abstract-shots"'),
        "narrow-shots": RETRIEVER.replace(", context", "").replace('"last"', '"narrow-shots"'),
    }
    for name, text in broken.items():
        module = name.replace("-", "_")
        install(site, f"b-{name}", {f"{module}.py": text}, {"emobench.components": {name: module}})
    install(site, "twin", {"twin_loss.py": OBJECTIVE.format(name="Emo")}, {"emobench.objectives": {"emo": "twin_loss"}})
    install(site, "bad-tasks", {"bad_tasks.py": "raise OSError('no disk')"}, {"emobench.tasks": {"bad": "bad_tasks"}})
    return site


@pytest.fixture(scope="module")
def done(site: Path, commands: Callable[..., Any]) -> dict[str, Any]:
    """What commands print where these packages are installed."""
    lines = {
        "objectives": ("objectives", "list", "--json"),
        "doctor": ("doctor", "--json"),
        "suites": ("suites", "list", "--json"),
        "theirz": ("suites", "show", "theirz"),
        "imports": ("objectives", "show", "imports"),
    }
    return dict(zip(lines, commands(site, *lines.values()), strict=True))


def test_strangers_are_listed_and_broken_ones_are_named_with_their_error(done: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in done["objectives"].json}
    assert rows["sound"]["summary"].rstrip(".") == "A stranger's objective"
    (scale,) = rows["sound"]["parameters"]
    limits = {"range": "at least 0.0, at most 2.0", "help": "a factor"}
    assert scale == {"name": "scale", "type": "float", "default": 1.0, **limits}
    assert rows["mle"]["parameters"] == []
    expected = {
        "imports": ("ModuleNotFoundError", "b_imports.py:1)"),
        "exits": ("SystemExit: 0", "b_exits.py:2)"),
        "syntax": ("SyntaxError", "b_syntax.py:2)"),
        "nohook": ("`emobench_objectives`", "@emobench.hookimpl"),
        "raises": ("ZeroDivisionError", ""),
        "garbage": ("returns 'emo'", ""),
        "needs": ("`needs` is ['entropy']", ""),
        "othername": ("offers something-else, not 'othername'", ""),
        "abstract": ("Abstract does not define loss", ""),
        "wronghook": ("emobench_objective", ""),
        "emo": ("emobench (emobench_objectives.emo) and twin (twin_loss)", ""),
    }
    for name, texts in expected.items():
        assert rows[name]["summary"].startswith("unusable: "), name
        assert all(text in rows[name]["summary"] for text in texts), (name, rows[name]["summary"])
    assert (done["imports"].code, "Traceback" in done["imports"].err) == (2, False)


def test_a_strangers_retriever_finds_shots_and_doctor_names_broken_plugins(site: Path, done: dict[str, Any]) -> None:
    states = {row["what"]: (row["state"], row["note"]) for row in done["doctor"].json}
    assert states["objective sound"][0] == states["objective mle"][0] == states["tasks sound"][0] == "ok"
    assert states["objective imports"][0] == states["tasks bad"][0] == "unusable"
    assert "OSError: no disk" in states["tasks bad"][1]
    assert states["retriever last"] == states["retriever dense"] == ("ok", "")
    expected = {
        "garbage-shots": "'last'; expected a list",
        "other-shots": "offers last",
        "abstract-shots": "Last does not define retrieve",
        "narrow-shots": "Retriever.retrieve gets (pool, queries, count, context)",
    }
    for name, text in expected.items():
        state, note = states[f"retriever {name}"]
        assert (state, text in note) == ("unusable", True), note
    environment = {**os.environ, "PYTHONPATH": str(site)}
    loaded = subprocess.run([sys.executable, "-c", LOAD_LAST], env=environment, capture_output=True, text=True)
    assert loaded.stdout.splitlines() == [
        "[[9, 7, 5], [9, 7, 5]] 64 ['bm25', 'dense', 'fixed', 'random']",
        "retriever last: `step` is 0; expected at least 1.",
    ], loaded.stderr


def test_suites_of_strangers_are_there_beside_a_broken_plugin(done: dict[str, Any]) -> None:
    suites = {suite["name"]: suite for suite in done["suites"].json}
    assert suites["theirs"]["version"] == 3
    assert "oracle-language" in suites
    assert "skipped: The plugin 'bad' from bad-tasks does not import" in done["suites"].err
    assert done["theirz"].code == 2
    assert "did you mean 'theirs'?" in done["theirz"].err
    assert "'bad' from bad-tasks does not import" in done["theirz"].err  # it might have been in there


def test_two_plugins_with_one_suite_are_named(tmp_path: Path, commands: Callable[..., Any]) -> None:
    module = "from pathlib import Path\nimport emobench\n\n@emobench.hookimpl\ndef emobench_tasks():\n"
    text = "name: lm-quick\nversion: 1\nruns:\n  - recipe: lm-finetune\n    tasks: [lm-quick]\n"
    modules = {
        "twin_tasks/__init__.py": module + "    return Path(__file__).parent\n",
        "twin_tasks/suites/lm-quick.yaml": text,
    }
    install(tmp_path, "twin-tasks", modules, {"emobench.tasks": {"twin": "twin_tasks"}})
    (done,) = commands(tmp_path, ("suites", "show", "lm-quick"))
    assert done.code == 2
    assert f"{tmp_path}/twin_tasks/suites/lm-quick.yaml" in done.err
    assert "emobench_tasks/suites/lm-quick.yaml" in done.err
