"""The door for plugins: built-ins and strangers come in the same way, and a broken one breaks only itself.

A stranger here is a real one: a folder with a module and the `dist-info` that an installer writes, on the path of a
process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

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


def emobench(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    return subprocess.run(
        [sys.executable, "-m", "emobench", *arguments], env=environment, cwd=site, capture_output=True, text=True
    )


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


def test_strangers_are_listed_and_broken_ones_are_named_with_their_error(site: Path) -> None:
    done = emobench(site, "objectives", "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["sound"]["summary"].rstrip(".") == "A stranger's objective"
    (scale,) = rows["sound"]["parameters"]
    assert scale == {
        "name": "scale",
        "type": "float",
        "default": 1.0,
        "range": "at least 0.0, at most 2.0",
        "help": "a factor",
    }
    assert rows["mle"]["parameters"] == []
    expected = {
        "imports": ("'imports' from b-imports does not import: ModuleNotFoundError", "b_imports.py:1)"),
        "exits": ("'exits' from b-exits does not import: SystemExit: 0", "b_exits.py:2)"),
        "syntax": ("'syntax' from b-syntax does not import: SyntaxError", "b_syntax.py:2)"),
        "nohook": ("The plugin 'nohook' implements no `emobench_objectives`", "@emobench.hookimpl"),
        "raises": ("The plugin 'raises' fails in its hook", "ZeroDivisionError: division by zero"),
        "garbage": ("The plugin 'garbage' returns 'emo'; expected a list of objective classes", ""),
        "needs": ("'needs' from b-needs does not import: Needs: `needs` is ['entropy']", "expected a set"),
        "othername": ("The plugin 'othername' offers something-else, not 'othername'.", ""),
        "abstract": ("The plugin 'abstract': Abstract does not define loss", ""),
        "wronghook": ("The plugin 'wronghook'", "emobench_objective"),
        "emo": ("Two plugins are named 'emo': emobench (emobench_objectives.emo) and twin (twin_loss).", ""),
    }
    for name, texts in expected.items():
        assert rows[name]["summary"].startswith("unusable: "), name
        for text in texts:
            assert text in rows[name]["summary"], (name, rows[name]["summary"])


def test_a_strangers_retriever_finds_shots_and_doctor_names_what_is_broken(site: Path) -> None:
    done = emobench(site, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    states = {row["what"]: (row["state"], row["note"]) for row in json.loads(done.stdout)}
    assert states["objective sound"][0] == states["objective mle"][0] == states["tasks sound"][0] == "ok"
    assert states["objective imports"][0] == states["tasks bad"][0] == "unusable"
    assert "'bad' from bad-tasks does not import: OSError: no disk" in states["tasks bad"][1]
    assert states["retriever last"] == states["retriever dense"] == ("ok", "")
    expected = {
        "garbage-shots": " returns 'last'; expected a list of retriever classes with a `name`.",
        "other-shots": " offers last, not 'other-shots'.",
        "abstract-shots": ": Last does not define retrieve; write `def retrieve(self, pool, queries, cou",
        "narrow-shots": ": Last: Retriever.retrieve gets (pool, queries, count, context); write `def retrieve(self, po",
    }
    for name, text in expected.items():
        state, note = states[f"retriever {name}"]
        assert state == "unusable"
        assert note.startswith(f"The plugin '{name}'{text}"), note
    found = subprocess.run(
        [sys.executable, "-c", LOAD_LAST], env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    assert found.stdout.splitlines() == [
        "[[9, 7, 5], [9, 7, 5]] 64 ['bm25', 'dense', 'fixed', 'random']",
        "retriever last: `step` is 0; expected at least 1.",
    ], found.stderr


def test_suites_of_strangers_are_there_beside_a_broken_plugin(site: Path) -> None:
    done = emobench(site, "suites", "list", "--json")
    assert done.returncode == 0, done.stderr
    suites = {suite["name"]: suite for suite in json.loads(done.stdout)}
    assert suites["theirs"]["version"] == 3
    assert "oracle-language" in suites
    assert "skipped: The plugin 'bad' from bad-tasks does not import" in done.stderr
    missing = emobench(site, "suites", "show", "theirz")
    assert missing.returncode == 2
    assert "There is no suite 'theirz'; did you mean 'theirs'?" in missing.stderr
    assert "'bad' from bad-tasks does not import" in missing.stderr  # it might have been in there


def test_a_broken_objective_is_refused(site: Path) -> None:
    refused = emobench(site, "objectives", "show", "imports")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: The plugin 'imports' from b-imports does not import: ModuleNotFoundError")
    assert "Traceback" not in refused.stderr


def test_two_plugins_with_one_suite_are_named(tmp_path: Path) -> None:
    module = "from pathlib import Path\nimport emobench\n\n@emobench.hookimpl\ndef emobench_tasks():\n"
    text = "name: lm-quick\nversion: 1\nruns:\n  - recipe: lm-finetune\n    tasks: [lm-quick]\n"
    install(
        tmp_path,
        "twin-tasks",
        {
            "twin_tasks/__init__.py": module + "    return Path(__file__).parent\n",
            "twin_tasks/suites/lm-quick.yaml": text,
        },
        {"emobench.tasks": {"twin": "twin_tasks"}},
    )
    done = emobench(tmp_path, "suites", "show", "lm-quick")
    assert done.returncode == 2
    assert "error: Two plugins have suites/lm-quick.yaml: " in done.stderr
    assert f"{tmp_path}/twin_tasks/suites/lm-quick.yaml" in done.stderr
    assert "emobench_tasks/suites/lm-quick.yaml" in done.stderr
