"""`emobench objectives`: lists and shows what is there, checks it, and writes a package that passes its own tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import emobench.testing
from emobench.cli.objectives.new import KINDS
from emobench.registry import objective_names

OWNERS = (
    emobench.WeightedLikelihood,
    emobench,
    emobench.testing,
    emobench.SetupContext,
    emobench.StatisticsObjective,
    emobench.DenseTargetObjective,
    Tensor,
)
"""Where the names on the page on plugins are from."""
BARE = """
import emobench

class Plain(emobench.StatisticsObjective):
    \"\"\"-log q_t. Own.\"\"\"

    def loss(self, s):
        return -s.log_prob

class Averaged(Plain):
    \"\"\"-log q_t, divided. Own.\"\"\"

    def loss(self, s):
        return -s.log_prob / len(s)

class Bare(emobench.Objective):
    pass

class Slow(emobench.ModelObjective):
    \"\"\"-log q_t. Own.\"\"\"

    def loss(self, model, batch):
        raise RuntimeError("not yet")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "bare.py").write_text(BARE)
    return tmp_path / "bare.py"


def test_a_list_has_a_group_for_each_level_and_a_line_for_each_objective(command: Callable[..., Any]) -> None:
    rows = {row["name"]: row for row in command("objectives", "list", "--json").json}
    assert list(rows) == objective_names()
    assert rows["mle"]["group"] == "Functions of token statistics"
    assert rows["emo"]["group"] == "Functions of token statistics, with transport costs"
    for row in rows.values():
        assert row["level"] in ("statistics", "logits", "model")
        assert row["summary"]
        assert row["equation"]
        assert row["source"]
        assert "\n" not in row["summary"]
    lines = command("objectives", "list").out.splitlines()
    for group in {row["group"] for row in rows.values()}:
        place = [line.strip() for line in lines].index(group)
        assert lines[place + 1].split() == ["name", "parameters", "loss", "what"]


def test_an_objective_is_shown_with_all_that_is_known_of_it(command: Callable[..., Any]) -> None:
    shown = command("objectives", "show", "tailr", "--json").json
    assert shown["level"] == "statistics"
    assert shown["equation"] == "-sg( q_t / (g + (1 - g) q_t) ) log q_t"
    assert shown["source"] == "Ji et al., ICLR 2023; EMO paper, Eq. 17"
    assert shown["statistics"] == ["log_prob"]
    assert shown["side_data"] == []
    assert shown["origin"].startswith("emobench ")
    assert shown["use"] == 'emobench run --objective "tailr(gamma=0.1)"'
    plain = command("objectives", "show", "tailr").out
    for text in (shown["equation"], shown["source"], shown["use"], shown["file"], "slopes by"):
        assert text in plain
    assert command("objectives", "show", "unlikelihood", "--json").json["side_data"]


def test_a_combination_is_shown_by_its_terms_and_checked_as_a_whole(command: Callable[..., Any]) -> None:
    terms = command("objectives", "show", "0.5*emo + linear(1, 0)*tailr(gamma=0.2) + mle", "--json").json
    assert [(term["name"], term["weight"]) for term in terms] == [
        ("emo", "0.5"),
        ("tailr", "linear(1, 0)"),
        ("mle", "1"),
    ]
    assert terms[1]["parameters"][0]["value"] == 0.2
    lines = command("objectives", "show", "0.5*emo + 0.25*mle").out.splitlines()
    assert [line.split() for line in lines if line.startswith("weight")] == [["weight", "0.5"], ["weight", "0.25"]]
    assert [line.partition(" (version")[0] for line in lines if "(version 1)" in line] == ["emo", "mle"]
    found = command("objectives", "check", "0.5*emo + mle", "--json").json
    assert found["ok"]
    assert {check["name"] for check in found["checks"] if check["status"] == "skipped"} == {
        "documentation",
        "parameters",
    }


def test_a_call_is_shown_with_the_values_that_it_gives(command: Callable[..., Any]) -> None:
    assert "gamma: float = 9.0 (default 2.0)" in command("objectives", "show", "focal(gamma=9)").out
    assert "gamma: float = 2.0  " in command("objectives", "show", "focal").out
    shown = command("objectives", "show", "power(max_prob=0.5)", "--json").json
    assert [(p["value"], p["default"]) for p in shown["parameters"]] == [(1.0, 1.0), (0.0, 0.0), (0.5, 1.0)]
    assert shown["use"] == 'emobench run --objective "power(max_prob=0.5)"'
    command("objectives", "show", "focal(gamma=-1)").refused("`gamma` is -1.0; expected at least 0.0.")


SOURCES = '''"""Losses of a paper (Doe et al., *On Losses*, 2024)."""
import emobench

class Numbered(emobench.StatisticsObjective):
    """-log q_t

    The bound of (Eq. 14), and of Roe (NeurIPS 2018).
    It is *one*
    paragraph.
    """

    def loss(self, s):
        return -s.log_prob

class Bracketed(Numbered):
    """-log q_t (Poe
    et al., 2016)"""
'''


def test_a_source_is_a_whole_reference(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(SOURCES)
    (tmp_path / "untitled.py").write_text(SOURCES.partition("\n")[2])
    for name, source in (
        ("whole.py:Numbered", "Doe et al., On Losses, 2024"),
        ("whole.py:Bracketed", "Poe et al., 2016"),
        ("untitled.py:Numbered", "The bound of (Eq. 14), and of Roe (NeurIPS 2018)"),
    ):
        shown = command("objectives", "show", f"{tmp_path}/{name}", "--json").json
        assert shown["source"] == source
        if "Numbered" in name:
            assert shown["about"] == "The bound of (Eq. 14), and of Roe (NeurIPS 2018). It is one paragraph."


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_list_keeps_names_whole_and_leaves_out_the_words(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = command("objectives", "list").out.splitlines()
    assert set(objective_names()) <= {line.split()[0] for line in lines if line.strip()}
    assert any("what" in line.split() for line in lines) == (width == 100)


def test_a_check_prints_a_line_for_each_promise(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", "tailr(gamma=0.2)")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "tailr(gamma=0.2): 18 ok."
    assert len([line for line in done.out.splitlines() if line.startswith("ok ")]) == 18
    bare = command("objectives", "check", f"{file}:Plain", "--json").json
    assert bare["ok"]
    assert (bare["objective"], bare["level"], bare["parameters"]) == ("plain", "statistics", {})
    assert {check["name"] for check in bare["checks"] if check["status"] == "skipped"} == {
        "slopes",
        "parts",
        "parameters",
    }


def test_a_failed_check_says_what_was_found_and_what_it_usually_means(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", f"{file}:Averaged")
    assert (done.code, done.err) == (1, "")
    assert "FAILED  chunks" in done.out
    assert "chunks: Chunks of size 1 and the reference differ in the loss by" in done.out
    assert "Usually: `loss` sees a chunk, not a batch" in done.out
    found = command("objectives", "check", f"{file}:Averaged", "--json")
    assert (found.code, found.json["ok"]) == (1, False)
    failed = {check["name"]: check for check in found.json["checks"] if check["status"] == "failed"}
    assert failed.keys() == {"chunks", "accumulation"}
    assert failed["chunks"]["usually"].startswith("`loss` sees a chunk")


def test_several_objectives_are_checked_one_after_the_other(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", "mle", f"{file}:Slow", "focal")
    assert (done.code, done.err) == (1, "")
    ends = [line.partition(":")[0] for line in done.out.splitlines() if re.search(r": \d+ ok", line)]
    assert ends == ["mle", "slow", "focal"]
    found = command("objectives", "check", "mle", "focal(gamma=1)", "--json").ok()
    assert [(one["objective"], one["ok"]) for one in found.json] == [("mle", True), ("focal", True)]
    command("objectives", "check", "mle", "tail").refused()


def test_a_check_names_the_line_that_raises(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", f"{file}:Slow")
    assert done.code == 1
    line = next(n for n, text in enumerate(BARE.splitlines(), 1) if "not yet" in text)
    assert f"units: It raises RuntimeError: not yet ({file}:{line})." in done.out


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tail", "There is no objective 'tail'; did you mean 'tailr'?"),
        ("nothing", "There is no objective 'nothing'. Known: brier, "),
        ("tailr(gamma=2)", "`gamma` is 2.0; expected at least 0.0, at most 1.0."),
        ("FILE:Bare", "Bare is none of StatisticsObjective, LogitsObjective and ModelObjective; subclass one."),
        ("./absent.py:Loss", "There is no file absent.py"),
    ],
)
def test_what_cannot_be_checked_is_said(command: Callable[..., Any], file: Path, name: str, sentence: str) -> None:
    command("objectives", "check", name.replace("FILE", str(file))).refused(sentence)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["My_Loss"], "'My_Loss' cannot name an objective; expected small letters, digits and hyphens: my-objective."),
        (["../loss"], "cannot name an objective"),
        (["tailr"], "'tailr' is taken, by emobench"),
        (["pretrained"], "stands for a model as it is"),
        (["objectives"], "The module emobench_objectives is installed already"),
        (["there"], "there exists; give another name, or another place with --directory."),
        (["mine", "--kind", "statistic"], "--kind is 'statistic'; expected one of statistics, logits, model."),
        (["mine", "--directory", "nowhere"], "--directory nowhere is not a folder; create it first"),
    ],
)
def test_a_name_that_cannot_be_used_writes_nothing(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    command("objectives", "new", *arguments).refused(sentence)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


NAMES = {"statistics": "mine", "logits": "a-margin-with-a-name-that-is-as-long-as-names-get", "model": "mine2"}


@pytest.fixture(scope="module")
def packages(command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A new package of each kind."""
    folder = tmp_path_factory.mktemp("packages")
    for kind, name in NAMES.items():
        done = command("objectives", "new", name, "--kind", kind, "--directory", folder)
        assert (done.code, done.err) == (0, "")
        assert f"pip install -e {folder / name}" in done.out
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES.values())
    return {kind: folder / name for kind, name in NAMES.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_is_clean_and_keeps_the_contract(
    command: Callable[..., Any], packages: dict[str, Path], kind: str
) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    for words in (["check", "--extend-select", "E501,B,UP,RUF"], ["format", "--check"]):
        done = subprocess.run([ruff, *words, "--no-cache", packages[kind]], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    (module,) = packages[kind].glob("*.py")
    class_name = next(line.split()[1].partition("(")[0] for line in module.read_text().splitlines() if "class " in line)
    found = command("objectives", "check", f"{module}:{class_name}", "--json").json
    assert found["ok"], found
    assert (found["objective"], found["level"]) == (NAMES[kind], kind)
    project = tomllib.loads((packages[kind] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["emobench.objectives"] == {NAMES[kind]: module.stem}


@pytest.mark.slow
def test_new_packages_pass_their_own_tests_as_written(packages: dict[str, Path], tmp_path: Path) -> None:
    places = [str(folder) for folder in packages.values()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--quiet",
        "--rootdir",
        tmp_path,
    ]
    done = subprocess.run([*command, *places], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_on_plugins_names_what_there_is() -> None:
    from emobench.objectives import STATISTICS, SetupContext

    page = (Path(__file__).parents[3] / "docs" / "guides" / "objectives.md").read_text()
    table = page.partition("| statistic | value |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == STATISTICS
    setup = page.partition("2. `setup(context)`")[2].partition("3. `begin_step")[0]
    asked = set(re.findall(r"`(?:context)?\.(\w+)", setup))
    assert asked == {name for name in vars(SetupContext) if not name.startswith("_")}
    for name in re.findall(r"`(?:\w+\.)*(\w+)\(", page.partition("## Three levels")[2]):
        assert any(hasattr(owner, name) for owner in OWNERS) or name in ("loss", "example_side"), name


def test_json_is_all_that_stdout_holds(tmp_path: Path) -> None:
    """A library, or a plugin, that prints while it is imported prints to stderr."""
    (tmp_path / "loud.py").write_text(
        "import os\nimport emobench\nprint('hello')\nos.write(1, b'from below\\n')\n\n\n"
        "class Loud(emobench.StatisticsObjective):\n    '''-log q_t (own)'''\n\n"
        "    def loss(self, s):\n        return -s.log_prob\n"
    )
    command = [sys.executable, "-m", "emobench", "objectives", "show", f"{tmp_path}/loud.py:Loud", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["name"] == "loud"
    assert "hello" in shown.stderr
    assert "from below" in shown.stderr
