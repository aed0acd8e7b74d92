"""Objectives by name, by a sum of names, and from a file of the user's: parameters, digests and refusals."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from emobench import registry
from emobench.core.errors import PluginError, UserError

OBJECTIVE = (Path(__file__).parent / "objective.py.tmpl").read_text()
"""A file with one objective, whose class gets its name by `format`."""


def test_parameters_come_inline_or_by_set() -> None:
    assert registry.load_objective("tailr(gamma=0.2)").objective.params["gamma"] == 0.2
    assert registry.load_objective("tailr", {"gamma": 0.3}).objective.params["gamma"] == 0.3


BAD_GAMMA = r"objective tailr: .*`gamma` is 1.5; expected at least 0"


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
    assert type(registry.load_objective(text).objective) is registry.OBJECTIVES.class_of("mle")
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


def test_an_objective_loads_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my - loss.v2.py"
    path.write_text(OBJECTIVE.format(name="MyLoss"))
    loaded = registry.load_objective(f"{path}:MyLoss(scale=0.5)")
    assert (loaded.name, loaded.objective.params) == ("my-loss", {"scale": 0.5})
    path.write_text(path.read_text().replace("Minus", "Twice"))
    again = registry.load_objective(f"{path}:MyLoss")
    assert (type(again.objective).__doc__ or "").startswith("Twice")


def test_what_runs_is_what_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's bytecode is that of a size and a second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, found = tmp_path / "loss.py", []
    for default in ("1.0", "2.0"):
        path.write_text(OBJECTIVE.format(name="MyLoss").replace("param(1.0", f"param({default}"))
        os.utime(path, (10**9, 10**9))
        found.append(registry.load_objective(f"{path}:MyLoss"))
    assert [loaded.objective.params for loaded in found] == [{"scale": 1.0}, {"scale": 2.0}]
    assert found[0].source_sha256 != found[1].source_sha256


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
            registry.OBJECTIVES.class_of(f"{path}:Mine")
        said = f"{path}:Mine: {level}.{method} {gets}; write `def {method}(self, {takes}):`."
        assert str(error.value) == said
    for written in ("def loss(self, model, batch, scale=1.0)", "@staticmethod\n    def loss(a, b)"):
        path.write_text(f"{head.format('ModelObjective')}    {written}:\n        return {{}}\n")
        assert registry.OBJECTIVES.class_of(f"{path}:Mine").__name__ == "Mine"


def test_an_error_in_a_users_file_is_named_with_its_last_line_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad2.py").write_text("import json\n\ndef read():\n    return json.loads('{')\n\nread()\n")
    with pytest.raises(PluginError) as error:
        registry.OBJECTIVES.class_of("bad2.py:Mine")
    said = str(error.value)
    assert said.startswith("The file bad2.py does not import: JSONDecodeError: ")
    assert said.endswith(f"({tmp_path / 'bad2.py'}:4). Fix it.")


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("x.py:MyLos", OBJECTIVE, r"x.py: There is no objective class 'MyLos'; did you mean 'MyLoss'"),
        ("x.py:emobench", OBJECTIVE, "There is no objective class 'emobench'"),
        ("x.py", OBJECTIVE, r"x.py' names no class of a Python file"),
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
        registry.OBJECTIVES.class_of(f"{tmp_path}/{name}")


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
