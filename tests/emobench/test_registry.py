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
from emobench.errors import ConfigError, PluginError, UnknownNameError, UserError
from emobench.registry.kinds import kind_of_name
from emobench.tasks.spec import short_name

OBJECTIVE = '''
"""A stranger's objective."""
import emobench

class {name}(emobench.StatisticsObjective):
    """Minus the log-probability, times `scale`."""
    scale: float = emobench.param(1.0, low=0.0, high=2.0, help="a factor")

    def loss(self, s):
        return -self.scale * s.log_prob

@emobench.hookimpl
def emobench_objectives():
    return [{name}]
'''


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
from emobench import errors, registry
loaded = registry.load_retriever("last(step=2)")
found = loaded.component.retrieve(list("abcdefghij"), ["x", "y"], 3, None).tolist()
print(found, len(loaded.source_sha256), [n for n in registry.retriever_names() if n in "bm25 dense fixed random"])
try:
    registry.load_retriever("last(step=0)")
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


def test_parameters_come_inline_or_by_set() -> None:
    assert registry.load_objective("tailr(gamma=0.2)").objective.params["gamma"] == 0.2
    assert registry.load_objective("tailr", {"gamma": 0.3}).objective.params["gamma"] == 0.3


BAD_GAMMA = r"objective tailr: .*`gamma` is 1.5; expected a number of at least 0"


@pytest.mark.parametrize(
    ("text", "settings", "refusal"),
    [
        ("tailr(gamma=0.2)", {"gamma": 0.2}, r"`gamma` is given in --objective 'tailr\(gamma=0.2\)' and in --set obj"),
        ("tailr(gama=0.2)", {}, r"objective tailr: There is no setting 'gama'; did you mean 'gamma'"),
        ("0.5*mle + 0.5*tailr(gama=0.2)", {}, r"objective tailr: There is no setting 'gama'; did you mean 'gamma'"),
        ("tailr(gamma=1.5)", {}, BAD_GAMMA),
        ("0.5*mle + 0.5*tailr(gamma=1.5)", {}, BAD_GAMMA),
        ("tailr(gamma=x)", {}, r"objective tailr: `gamma` is 'x'; expected a number"),
        ("tailr", {"gamma": float("nan")}, "finite"),
        ("0.5*emoo + 0.5*mle", {}, r"^There is no objective 'emoo'; did you mean 'emo'"),
        ("pretrained", {}, "'pretrained' is no objective"),
        ("0.5*pretrained + 0.5*mle", {}, "'pretrained' is no objective"),
        ("0.5*mle + linear(1, 0)*mle", {}, r"mle is two terms of one combination; give it once"),
        (
            "0.5*mle + tailr",
            {"gamma": 0.2},
            r"^--set objective.gamma: '0.5\*mle \+ tailr' has weights or several terms",
        ),
        ("0.5*tailr", {"gamma": 0.2}, r"^--set objective.gamma: '0.5\*tailr' has weights"),
    ],
)
def test_objectives_and_parameters_that_are_refused(text: str, settings: dict[str, float], refusal: str) -> None:
    with pytest.raises(UserError, match=refusal):
        registry.load_objective(text, settings)


def test_a_combination_has_one_name_however_it_is_written() -> None:
    texts = ("0.5*tailr(gamma=0.2) + linear(1,0) * mle", "linear(1.0, 0)*mle+.50*tailr( gamma = 0.2, min_weight=0)")
    one, other = (registry.load_objective(text) for text in texts)
    assert one.name == other.name == "linear(1, 0)*mle + 0.5*tailr(gamma=0.2)"
    assert one.objective.params == other.objective.params == {"tailr.gamma": 0.2, "tailr.min_weight": 0.0}
    assert one.source_sha256 == other.source_sha256


@pytest.mark.parametrize("text", ["mle", " mle", "1*mle", "constant(1) * mle", "linear(1, 1)*mle"])
def test_a_single_objective_of_weight_one_is_no_combination(text: str) -> None:
    assert registry.load_objective(text).name == "mle"
    assert type(registry.load_objective(text).objective) is registry.objective_class("mle")
    assert registry.load_objective(text).source_sha256 == registry.load_objective("mle").source_sha256
    assert registry.load_objective(f"0.5*{registry.load_objective(text).name}").name == "0.5*mle"


def test_the_digest_of_a_combination_covers_the_file_of_each_term(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(OBJECTIVE.format(name="First"))
    second.write_text(OBJECTIVE.format(name="Second"))

    def digest(text: str = f"0.5*{first}:First(scale=0.5) + {second}:Second + mle") -> str:
        return registry.load_objective(text).source_sha256

    digests = [digest(), digest(f"mle+{second}:Second + .5*{first}:First(scale=.5)")]
    assert digests[0] == digests[1]
    for path in (second, first):
        path.write_text(path.read_text().replace("return -self", "return -1.5 * self"))
        digests.append(digest())
    assert len(set(digests)) == 3
    assert digest(f"0.5*{first}:First") == registry.load_objective(f"{first}:First").source_sha256


@pytest.mark.parametrize(
    ("find", "given", "text"),
    [
        (registry.objective_class, "emoo", "There is no objective 'emoo'; did you mean 'emo'? Known: "),
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
    assert scale == {"name": "scale", "type": "float", "default": 1.0, "range": "from 0.0 to 2.0", "help": "a factor"}
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


def test_an_objective_loads_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my - loss.v2.py"
    path.write_text(OBJECTIVE.format(name="MyLoss"))
    loaded = registry.load_objective(f"{path}:MyLoss(scale=0.5)")
    assert (loaded.name, loaded.objective.params) == ("my-loss", {"scale": 0.5})
    path.write_text(path.read_text().replace("Minus", "Twice"))
    again = registry.load_objective(f"{path}:MyLoss")
    assert (type(again.objective).__doc__ or "").startswith("Twice")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("A stranger's objective.", "Mine.", True),
        ('"""Minus the log-probability, times `scale`."""', "", True),
        ("    def loss(self, s):", "    # In nats.\n\n    def loss( self,s ):  # each token", True),
        ('help="a factor")', "help='a factor'\n    )\n    'How steep it is.'", True),
        ("return -self", "'What is new.'; return -self", True),
        ("return -self", "return self", False),
        ("param(1.0", "param(1", False),
        ("return -self.scale * s.log_prob", "return None", False),
        ('help="a factor"', 'help="a # factor"', False),
        ("def loss(self, s):", "def loss(self, s, *, more=[]):", False),
        ("class MyLoss(", "x = 1\n\nclass MyLoss(", False),
    ],
)
def test_only_a_change_of_code_makes_another_objective(tmp_path: Path, old: str, new: str, same: bool) -> None:
    path, text = tmp_path / "my_loss.py", OBJECTIVE.format(name="MyLoss")
    path.write_text(text)
    digest = registry.load_objective(f"{path}:MyLoss").source_sha256
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert (registry.load_objective(f"{path}:MyLoss").source_sha256 == digest) is same


def test_methods_that_do_not_take_what_their_level_passes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.py"
    of_logits = ("gets (logits, targets, side)", "logits_NV, targets_N, side")
    of_model = ("gets (model, batch)", "model, batch")
    cases = [
        ("LogitsObjective", "loss", "self, logits, targets", *of_logits),
        ("LogitsObjective", "parts", "self, s", *of_logits),
        ("StatisticsObjective", "loss", "self", "gets (s)", "s"),
        ("StatisticsObjective", "slopes", "self, s, more", "gets (s)", "s"),
        ("StatisticsObjective", "parts", "s", "gets (s)", "s"),
        ("ModelObjective", "loss", "self, batch", *of_model),
        ("ModelObjective", "loss", "self, model, *, batch", *of_model),
    ]
    head = "import emobench\n\nclass Mine(emobench.{}):\n    def loss(self, *given):\n        return given\n\n"
    for level, method, arguments, gets, takes in cases:
        path.write_text(f"{head.format(level)}    def {method}({arguments}):\n        return {{}}\n")
        with pytest.raises(PluginError) as error:
            registry.objective_class(f"{path}:Mine")
        said = f"{path}:Mine: {level}.{method} {gets}; write `def {method}(self, {takes}):`."
        assert str(error.value) == said
    for written in ("def loss(self, model, batch, scale=1.0)", "@staticmethod\n    def loss(a, b)"):
        path.write_text(f"{head.format('ModelObjective')}    {written}:\n        return {{}}\n")
        assert registry.objective_class(f"{path}:Mine").__name__ == "Mine"


def test_an_error_in_a_users_file_is_named_with_its_last_line_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad2.py").write_text("import json\n\ndef read():\n    return json.loads('{')\n\nread()\n")
    with pytest.raises(PluginError) as error:
        registry.objective_class("bad2.py:Mine")
    said = str(error.value)
    assert said.startswith("The file bad2.py does not import: JSONDecodeError: ")
    assert said.endswith(f"({tmp_path / 'bad2.py'}:4). Mend it.")


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("x.py:MyLos", OBJECTIVE, r"x.py: There is no objective class 'MyLos'; did you mean 'MyLoss'"),
        ("x.py:emobench", OBJECTIVE, "There is no objective class 'emobench'"),
        ("x.py", OBJECTIVE, r"x.py' names a file; expected its class too, such as .*x.py:MyLoss"),
        ("none.py:MyLoss", OBJECTIVE, r"There is no file .*none\.py"),
        ("folder.py:MyLoss", OBJECTIVE, r"There is no file .*folder\.py"),
        ("x.py:MyLoss", OBJECTIVE.replace("def loss", "def los"), "x.py:MyLoss does not define loss"),
        ("x.py:MyLoss", "import emobench\n\nclass MyLoss(:\n", r"does not import: SyntaxError: .*x.py:3\)"),
        ("x.py:MyLoss", "\0", "does not import"),
        ("x.py:MyLoss", "class MyLoss:\n    pass\n", "There is no objective class at all"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, text: str, refusal: str) -> None:
    (tmp_path / "x.py").write_text(text.format(name="MyLoss"))
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(UserError, match=refusal):
        registry.objective_class(f"{tmp_path}/{name}")


@pytest.mark.parametrize(
    "text",
    [
        "emo(cost=__import__('pathlib').Path({0!r}).touch())",
        "emo(cost=open({0!r}, 'w'))",
        "__import__('pathlib').Path({0!r}).touch()",
        "emo)(__import__('pathlib').Path({0!r}).touch()",
        "emo(cost=[open({0!r}, 'w') for _ in 'x'])",
        "emo(cost=(lambda: open({0!r}, 'w'))())",
        "0.5*emo(cost=open({0!r}, 'w')) + 0.5*mle",
        "linear(open({0!r}, 'w'), 0)*mle",
    ],
)
def test_a_name_never_runs_code(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        registry.load_objective(text.format(str(tmp_path / "made")))
    assert list(tmp_path.iterdir()) == []


OWN_SUITE = """
name: my-suite
version: 1
runs:
  - recipe: ./my-recipe.yaml
    tasks: [sub/my-task.yaml, sst2]
"""
OWN_TASK = """
name: my-task
kind: generation
version: 1
corpus: wikitext2
protocols: {short: {prefix: 8, continuation: 16}}
"""
OWN_LABELLED = """
name: stars
kind: icl
version: 1
dataset:
  name: stars
  repo: someone/stars
  classes: [one, five]
  names: {'0': one, '1': five}
  pool: {split: train, files: train.parquet}
  test: {split: test, files: test.parquet}
protocols:
  plain:
    template: 'Review: {text} Stars: {label}'
    labels: {one: one, five: five}
"""
OWN_RECIPE = """
name: my-recipe
corpus: wikitext2
epochs: 1
batch: 2
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A suite of the user's, whose task and recipe are files, too."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "my-suite.yaml").write_text(OWN_SUITE)
    (tmp_path / "my-recipe.yaml").write_text(OWN_RECIPE)
    (tmp_path / "sub" / "my-task.yaml").write_text(OWN_TASK)
    return tmp_path / "my-suite.yaml"


def test_a_suite_of_files_takes_their_paths_from_its_own_folder(own: Path) -> None:
    suite = registry.find_suite(str(own))
    (run,) = suite.runs
    assert (suite.name, run.tasks[1]) == ("my-suite", "sst2")
    assert [short_name(name) for name in run.tasks] == ["my-task", "sst2"]
    assert registry.find_task(run.tasks[0]).protocol.prefix == 8
    assert registry.find_recipe(run.recipe).batch == 2


def test_the_file_of_a_task_is_a_suite_of_it(own: Path) -> None:
    suite = registry.find_suite(str(own.parent / "sub" / "my-task.yaml"))
    (run,) = suite.runs
    assert (suite.name, suite.version, run.settings) == ("my-task", 1, {"corpus": "wikitext2"})
    assert registry.find_task(*run.tasks).protocol.prefix == 8
    labelled = own.with_name("stars.yaml")
    labelled.write_text(OWN_LABELLED)
    (run,) = registry.find_suite(str(labelled)).runs
    assert (run.recipe, run.settings) == (registry.DEFAULT_RECIPE, {})
    labelled.write_text(OWN_LABELLED.replace("plain:", "plain: {templat: x}\n  other:"))
    with pytest.raises(UserError, match=r"stars\.yaml:\d+: .*templat"):
        registry.find_suite(str(labelled))


def test_files_may_end_in_yml(own: Path) -> None:
    for path in (own, own.with_name("my-recipe.yaml"), own.parent / "sub" / "my-task.yaml"):
        path.rename(path.with_suffix(".yml"))
    suite = own.with_suffix(".yml")
    suite.write_text(OWN_SUITE.replace(".yaml", ".yml"))
    (run,) = registry.find_suite(str(suite)).runs
    assert [short_name(name) for name in run.tasks] == ["my-task", "sst2"]
    assert registry.find_task(run.tasks[0]).protocol.prefix == 8
    assert registry.find_recipe(run.recipe).batch == 2
    assert registry.find_suite(run.tasks[0]).name == "my-task"


def test_files_that_no_entry_could_tell_from_what_is_installed_are_refused(own: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file .*other\.yaml; expected the YAML of a suite"):
        registry.find_suite(str(own.with_name("other.yaml")))
    taken = own.with_name("nlu.yaml")
    taken.write_text(OWN_SUITE)
    with pytest.raises(ConfigError, match=r"nlu\.yaml has the name of an installed suite"):
        registry.find_suite(str(taken))
    other = own.with_name("yours.yaml")
    other.write_text(OWN_SUITE)
    with pytest.raises(ConfigError, match=r"`name: my-suite`; expected `name: yours`"):
        registry.find_suite(str(other))
    task = own.with_name("ptb.yaml")  # installed as generation/ptb
    task.write_text(OWN_TASK)
    with pytest.raises(ConfigError, match=r"ptb\.yaml has the name of an installed task"):
        registry.find_task(str(task))
