"""The promises of the design, kept: layers, documents, sizes, names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emobench import registry
from emobench.core.errors import UserError
from emobench.data.instruction_sets import CONVERSATIONS
from emobench.data.sources import CORPORA
from emobench.tasks.yaml import read_yaml

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "emobench", ROOT / "plugins" / "emobench_objectives", ROOT / "tasks" / "emobench_tasks")
MODULES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
FILES = sorted((ROOT / "tasks" / "emobench_tasks").rglob("*.yaml"))
TREES = {path: ast.parse(path.read_text()) for path in MODULES}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_arrows_point_one_way() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert f"{len(contracts)} kept" in done.stdout


def test_every_package_is_in_the_layers() -> None:
    """import-linter's `exhaustive` says so as well, once a package is imported; this names the folder."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    listed = {name.strip() for layer in layers for name in re.split("[|:]", layer)}
    there = {p.stem for p in (ROOT / "emobench").iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert there - {"__init__", "__main__"} == listed


def test_every_module_has_a_docstring() -> None:
    without = []
    for path, tree in TREES.items():
        empty = path.name == "__init__.py" and not tree.body
        if not ast.get_docstring(tree) and not empty:
            without.append(named(path))
    assert without == []


def test_nothing_is_left_undone() -> None:
    words = re.compile(r"NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b")
    unfinished = []
    for path in MODULES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if words.search(line):
                unfinished.append(f"{named(path)}:{number}: {line}")
    assert unfinished == []


def test_user_input_is_not_checked_by_assert() -> None:
    """`python -O` drops asserts, and they hide what came: a handful tell the type checker what is known."""
    counts = {named(p): sum(isinstance(n, ast.Assert) for n in ast.walk(t)) for p, t in TREES.items()}
    assert max(counts.values()) <= 4, counts


def test_nothing_is_executed_from_text() -> None:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "os.system", "yaml.unsafe_load", "pickle.load", "pickle.loads"), (
                    path
                )
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert words.get("shell") != "True", path
                if called == "torch.load":
                    assert words["weights_only"] == "True", path


def test_each_hook_is_implemented() -> None:
    text = "".join(path.read_text() for package in PACKAGES for path in package.rglob("*.py"))
    for hook in ("emobench_tasks", *(family.hook for family in registry.families().values())):
        assert f"hookimpl\ndef {hook}()" in text


def test_the_core_names_no_objective_and_no_task() -> None:
    """Names of plugins stand in the suites' YAML. The harness's own tiny models are the one exception: they have
    to be trained by something, and `tiny_models.py` says by what."""
    names = {*registry.objective_names(), *registry.suite_names(), *registry.recipe_names()}
    # a suite or a recipe may be named after the kind of its tasks, or after its corpus
    names -= {*registry.kind_names(), *CORPORA, *CONVERSATIONS}
    allowed = {
        # how they are made
        "runs/planning/ingredients.py": {"mle"},
        "runs/planning/tiny_models.py": {"oracle-pretrain", "oracle-pretrain-episodes", "tiny-lm-pretrain"},
        "cli/options/__init__.py": {"oracle-language"},  # the embedded default
        "registry/task_files.py": {"lm-finetune"},  # the default of --recipe
        "report/baseline.py": {"mle"},  # the default of --baseline
    }
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "emobench").rglob("*.py")):
        strings = {
            node.value
            for node in ast.walk(TREES[path])
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
        }
        if strings:
            found[str(path.relative_to(ROOT / "emobench"))] = strings
    # "mle" is also a quantity: the negative log-likelihood that every training reports and may select by.
    quantity = ("training/train.py", "training/attach.py", "training/recipe.py")
    for path in (*quantity, "library.py", "objectives/engine/job.py", "testing/token_checks.py"):
        found.get(path, set()).discard("mle")
    assert {path: strings for path, strings in found.items() if strings} == allowed


def test_the_files_of_the_built_in_tasks_are_read_and_named_after_their_content() -> None:
    find: dict[str, Callable[[str], Any]] = {
        "tasks": registry.find_task,
        "suites": registry.find_suite,
        "recipes": registry.find_recipe,
        "tables": registry.find_table,
    }
    assert FILES
    wrong = []
    for path in FILES:
        folder, *name = path.relative_to(ROOT / "tasks" / "emobench_tasks").with_suffix("").parts
        try:
            names = {read_yaml(path)["name"], find[folder]("/".join(name)).name}
        except (UserError, KeyError) as error:
            wrong.append(f"{named(path)}: {error!r}")
            continue
        if names != {path.stem}:
            wrong.append(f"{named(path)}: named {names}")
    assert wrong == []


def test_every_protocol_of_every_task_can_be_chosen() -> None:
    for task in registry.task_names():
        protocols = registry.protocol_names(task)
        assert len({registry.find_task(task, protocol=name).protocol_id for name in protocols}) == len(protocols) > 0


def test_folders_of_packages_are_no_packages_themselves() -> None:
    for folder in ("plugins", "tasks", "tests"):
        assert not list((ROOT / folder).glob("__init__.py"))
    assert not [path for path in (ROOT / "tests").rglob("__init__.py") if ROOT / "tests/packages" not in path.parents]


def test_ignored_paths_are_anchored() -> None:
    """A bare `data/` would also take `emobench/data/` out of the wheel."""
    lines = [line for line in (ROOT / ".gitignore").read_text().splitlines() if line and not line.startswith("#")]
    names = {path.name for path in (ROOT / "emobench").iterdir()} - {"__pycache__"}
    for line in lines:
        assert line.strip("/*!.") not in names or line.startswith("/"), line


def test_no_machine_and_no_registry_is_named() -> None:
    texts = [*MODULES, *FILES, ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    for path in texts:
        text = path.read_text()
        for word in (str(ROOT), str(Path.home()), "index-url", "/simple/"):
            assert word not in text, (path, word)
