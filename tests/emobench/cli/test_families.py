"""`list`, `show`, `check` and `new` of every family of plugins, and the contracts that `check` tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor

import emobench
import emobench.testing
from emobench.kinds.generation.kind import METRICS
from emobench.kinds.icl.retrieval.retriever import RETRIEVERS
from emobench.kinds.instruct.judging.judge import JUDGES
from emobench.registry import KINDS, families, objective_names
from emobench.tasks.scores import Score
from emobench.testing import run_checks

SOME = {"objectives": "tailr", "kinds": "icl", "retrievers": "bm25", "metrics": "rouge", "judges": "pandalm"}
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


def test_kinds_bring_families_of_their_own() -> None:
    assert families().keys() == SOME.keys()
    assert [cls.name for cls in KINDS.usable().values() if RETRIEVERS in cls.families] == ["icl"]


@pytest.mark.parametrize("plural", SOME)
def test_each_family_is_listed_shown_and_refused(command: Callable[..., Any], plural: str) -> None:
    listed = command(plural, "list", "--json").json
    assert [row["name"] for row in listed] == families()[plural].names()
    assert all(row["summary"] and "\n" not in row["summary"] for row in listed)
    lines = command(plural, "list").out.splitlines()
    assert {row["name"] for row in listed} <= {line.split()[0] for line in lines if line.strip()}
    shown = command(plural, "show", SOME[plural], "--json").json
    assert shown["origin"].startswith("emobench ")
    plain = command(plural, "show", SOME[plural]).out
    assert all(text in plain for text in (shown["name"], shown["file"]))
    command(plural, "show", f"{SOME[plural]}s").refused(f"did you mean '{SOME[plural]}'?")


def test_objectives_are_listed_by_level_with_equation_and_source(command: Callable[..., Any]) -> None:
    rows = {row["name"]: row for row in command("objectives", "list", "--json").json}
    assert rows["mle"]["group"] == "Functions of token statistics"
    assert rows["emo"]["group"] == "Functions of token statistics, with transport costs"
    for row in rows.values():
        assert row["level"] in ("statistics", "logits", "model")
        assert row["equation"]
        assert row["source"]
    lines = command("objectives", "list").out.splitlines()
    for group in {row["group"] for row in rows.values()}:
        place = [line.strip() for line in lines].index(group)
        assert lines[place + 1].split()[0] == "name"
        assert lines[place + 1].split()[-2:] == ["equation", "what"]


def test_an_objective_is_shown_with_its_equation_source_and_use(command: Callable[..., Any]) -> None:
    shown = command("objectives", "show", "tailr", "--json").json
    assert shown["equation"] == "-sg( q_t / (g + (1 - g) q_t) ) log q_t"
    assert shown["source"] == "Ji et al., ICLR 2023; EMO paper, Eq. 17"
    assert (shown["level"], shown["statistics"], shown["side_data"]) == ("statistics", ["log_prob"], [])
    assert shown["use"] == "emobench run --objective mle --objective tailr"
    assert command("objectives", "show", "unlikelihood", "--json").json["side_data"]


def test_a_sum_is_shown_by_its_terms_and_checked_as_a_whole(command: Callable[..., Any]) -> None:
    terms = command("objectives", "show", "0.5*emo + linear(1, 0)*tailr(gamma=0.2) + mle", "--json").json
    assert [(term["name"], term["weight"]) for term in terms] == [
        ("emo", "0.5"),
        ("tailr", "linear(1, 0)"),
        ("mle", "1"),
    ]
    assert terms[1]["parameters"][0]["value"] == 0.2
    report = command("objectives", "check", "0.5*emo + mle", "--json").json
    assert report["ok"]
    skipped = {check["name"] for check in report["checks"] if check["status"] == "skipped"}
    assert skipped == {"documentation", "parameters"}


def test_a_call_is_shown_with_the_values_that_it_gives(command: Callable[..., Any]) -> None:
    assert "gamma: float = 9.0 (default 2.0)" in command("objectives", "show", "focal(gamma=9)").out
    shown = command("objectives", "show", "power(max_prob=0.5)", "--json").json
    assert [(p["value"], p["default"]) for p in shown["parameters"]] == [(1.0, 1.0), (0.0, 0.0), (0.5, 1.0)]
    assert shlex.split(shown["use"])[-2:] == ["--objective", "power(max_prob=0.5)"]
    assert "k1: float = 2.0 (default 1.5)" in command("retrievers", "show", "bm25(k1=2)").out
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


@pytest.mark.parametrize(
    ("cls", "titled", "source"),
    [
        ("Numbered", True, "Doe et al., On Losses, 2024"),
        ("Bracketed", True, "Poe et al., 2016"),
        ("Numbered", False, "The bound of (Eq. 14), and of Roe (NeurIPS 2018)"),
    ],
)
def test_a_source_is_a_whole_reference(
    command: Callable[..., Any], tmp_path: Path, cls: str, titled: bool, source: str
) -> None:
    (tmp_path / "losses.py").write_text(SOURCES if titled else SOURCES.partition("\n")[2])
    shown = command("objectives", "show", f"{tmp_path}/losses.py:{cls}", "--json").json
    assert shown["source"] == source
    if cls == "Numbered":
        assert shown["about"] == "The bound of (Eq. 14), and of Roe (NeurIPS 2018). It is one paragraph."


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_list_keeps_names_whole(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = command("objectives", "list").out.splitlines()
    assert set(objective_names()) <= {line.split()[0] for line in lines if line.strip()}


def test_what_judges_and_metrics_are_shown_with(command: Callable[..., Any]) -> None:
    judges = {row["name"]: row for row in command("judges", "list", "--json").json}
    assert (judges["pandalm"]["model"], judges["mt-bench"]["reads"]) == ("WeOpenML/PandaLM-7B-v1", "one response")
    assert "### Response 1:" in command("judges", "show", "pandalm").out
    assert command("judges", "show", "auto-j", "--json").json["options"]["max_tokens"] == 1024
    assert "user: " in command("judges", "show", "mt-bench").out
    metrics = {row["name"]: row for row in command("metrics", "list", "--json").json}
    assert metrics["ppl-oracle"]["measures"] == {"ppl_oracle": {"unit": "perplexity", "better": "lower"}}
    assert "rougeL: unit: fraction, better: higher" in command("metrics", "show", "rouge").out


def test_the_metrics_of_entries_are_defined(command: Callable[..., Any]) -> None:
    assert "total_variation" in command("metrics", "list").out
    shown = command("metrics", "show", "reverse_cross_entropy").out
    assert {"unit nats", "better lower", "range 0 or more"} <= {" ".join(line.split()) for line in shown.splitlines()}
    assert command("metrics", "show", "mauve_star", "--json").json["range"] == "0 to 100 %"
    assert command("metrics", "show", "ppl_test", "--json").json["title"] == "Test perplexity"


# check


def test_a_check_prints_a_line_for_each_promise(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", "tailr(gamma=0.2)").ok()
    assert done.out.splitlines()[-1] == "tailr(gamma=0.2): 18 ok."
    assert len([line for line in done.out.splitlines() if line.startswith("ok ")]) == 18
    bare = command("objectives", "check", f"{file}:Plain", "--json").json
    skipped = {check["name"] for check in bare["checks"] if check["status"] == "skipped"}
    assert (bare["ok"], skipped) == (True, {"slopes", "parts", "parameters"})


def test_a_failed_check_names_the_problem_and_its_usual_cause(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", f"{file}:Averaged")
    assert (done.code, done.err) == (1, "")
    assert "FAILED  chunks" in done.out
    assert "Usually: `loss` sees a chunk, not a batch" in done.out
    report = command("objectives", "check", f"{file}:Averaged", "--json").json
    failed = {check["name"] for check in report["checks"] if check["status"] == "failed"}
    assert (report["ok"], failed) == (False, {"chunks", "accumulation"})


def test_several_plugins_are_checked_one_after_the_other(command: Callable[..., Any], file: Path) -> None:
    done = command("objectives", "check", "mle", f"{file}:Slow", "focal")
    assert (done.code, done.err) == (1, "")
    ends = [line.rpartition(":")[0] for line in done.out.splitlines() if re.search(r": \d+ ok", line)]
    assert ends == ["mle", f"{file}:Slow", "focal"]
    line = next(n for n, text in enumerate(BARE.splitlines(), 1) if "not yet" in text)
    assert f"units: It raises RuntimeError: not yet ({file}:{line})." in done.out
    command("objectives", "check", "mle", "tail").refused()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tail", "There is no objective 'tail'; did you mean 'tailr'?"),
        ("tailr(gamma=2)", "`gamma` is 2.0; expected at least 0.0, at most 1.0."),
        ("FILE:Bare", "Bare is none of StatisticsObjective, LogitsObjective and ModelObjective; subclass one."),
        ("./absent.py:Loss", "There is no file absent.py"),
    ],
)
def test_objectives_that_cannot_be_checked(command: Callable[..., Any], file: Path, name: str, sentence: str) -> None:
    command("objectives", "check", name.replace("FILE", str(file))).refused(sentence)


@pytest.mark.parametrize("family", [KINDS, RETRIEVERS, METRICS, JUDGES], ids=lambda family: family.plural)
def test_built_in_plugins_keep_the_contract(family: Any) -> None:
    for name in family.names():
        if name == "alpaca-eval":
            pytest.importorskip("alpaca_eval", reason="needs the package alpaca-eval", exc_type=ImportError)
        outcomes = run_checks(family.load(name).plugin)
        assert [one for one in outcomes if one.status == "failed"] == [], name
        assert outcomes[0].status == "ok", name


class Clearer(emobench.PairJudge):
    """Which response is clearer. Own."""

    name = "clearer"
    model = "a-judge"
    examples: ClassVar = {"1": 1.0, "2": 0.0}
    prompt = "{}\n1: {}\n2: {}"

    def request(self, pair: emobench.Pair) -> Any:
        return emobench.JudgeRequest(self.prompt.format(pair.instruction, pair.first, pair.second))

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        return {"1": 1.0, "2": 0.0}.get(reply.text)


class Told(Clearer):
    def request(self, pair: emobench.Pair) -> Any:
        return self.prompt.format(pair.instruction, pair.first, pair.second)


class Answered(Clearer):
    def request(self, pair: emobench.Pair) -> Any:
        text = super().request(pair).prompt
        return emobench.JudgeRequest(({"role": "user", "content": text}, {"role": "assistant", "content": "It is"}))


class FilledTwice(Clearer):
    def request(self, pair: emobench.Pair) -> Any:
        text = "{instruction}\n1: {output_1}\n2: {output_2}"
        for field, value in {"instruction": pair.instruction, "output_2": pair.second, "output_1": pair.first}.items():
            text = text.replace(f"{{{field}}}", value)
        return emobench.JudgeRequest(text)


class Named(Clearer):
    def request(self, pair: emobench.Pair) -> Any:
        return emobench.JudgeRequest(f"{super().request(pair).prompt}\nThe first one has {len(pair.first)} letters.")


class TiesByDefault(Clearer):
    def preference(self, reply: emobench.JudgeReply) -> float | None:
        return {"1": 1.0, "2": 0.0}.get(reply.text, 0.5)


class Misread(Clearer):
    examples: ClassVar = {"1": 1.0, "[[2]]": 0.0}


class First(Clearer):
    def preference(self, reply: emobench.JudgeReply) -> float | None:
        digit = re.search("[12]", reply.text)
        return None if digit is None else {"1": 1.0, "2": 0.0}[digit[0]]


class Words(emobench.Metric):
    """The number of words. Own."""

    name = "words"
    higher_is_better = None
    unit = "words"

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return np.array([[float(len(text.split())) for text in run] for run in texts.continuations])


class Negative(Words):
    unit = "fraction"

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return -super().values(texts, context)


class Counting(Words):
    calls = 0

    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        Counting.calls += 1
        return super().values(texts, context) + Counting.calls


class Relative(Words):
    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return super().values(texts, context) / len(texts.ids)


class Divided(Words):
    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return 1 / super().values(texts, context)


class Undeclared(Words):
    def values(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> np.ndarray:
        return super().values(texts, context) * len(context.model("judge").tokenizer)


class Renamed(Words):
    def score(self, texts: emobench.GeneratedTexts, context: emobench.MetricContext) -> Mapping[str, Score]:
        (score,) = super().score(texts, context).values()
        return {"word": score}


class Longest(emobench.Retriever):
    """The longest examples. Own."""

    name = "longest"

    def retrieve(self, pool: Any, queries: Any, count: int, context: Any) -> Any:
        order = np.argsort([-len(text) for text in pool], kind="stable")
        return np.tile(order[:count], (len(queries), 1))


class AsList(Longest):
    def retrieve(self, pool: Any, queries: Any, count: int, context: Any) -> Any:
        return super().retrieve(pool, queries, count, context).tolist()


class Drawn(Longest):
    generator = np.random.default_rng(0)

    def retrieve(self, pool: Any, queries: Any, count: int, context: Any) -> Any:
        return np.array([self.generator.permutation(len(pool))[:count] for _ in queries])


class Empty(Longest):
    def retrieve(self, pool: Any, queries: Any, count: int, context: Any) -> Any:
        assert all(text.split() for text in queries)
        return super().retrieve(pool, queries, count, context)


class Encoding(Longest):
    def retrieve(self, pool: Any, queries: Any, count: int, context: Any) -> Any:
        context.embed(pool)
        return super().retrieve(pool, queries, count, context)


@dataclass(frozen=True, kw_only=True)
class Limit(emobench.Rules):
    limit: int | None = None


class Counts(emobench.Kind):
    """How many texts there are. Own."""

    name = "counts"
    rules = Limit
    example = "limit=3"

    @property
    def runtime(self) -> Any:
        from emobench.kinds.surrogate import evaluate

        return evaluate


class Unruled(Counts):
    rules: ClassVar[Any] = dict


class Partial(Counts):
    @property
    def runtime(self) -> Any:
        return self


@pytest.mark.parametrize(
    ("sound", "broken", "check", "text"),
    [
        (Clearer, First, "quoted verdicts", "as 1.0; expected 0.0 or None"),
        (Clearer, Told, "request", "`request` gives a str"),
        (Clearer, Answered, "request", "The last of its messages is not the user's"),
        (Clearer, FilledTwice, "texts", "is in the prompt"),
        (Clearer, Named, "order", "differ in more than the order of the responses"),
        (Clearer, TiesByDefault, "other replies", "It reads '' as 0.5"),
        (Clearer, Misread, "examples", "It reads '[[2]]' as None; its `examples` have 0.0"),
        (Words, Negative, "scores", "which is not a fraction"),
        (Words, Renamed, "scores", "It gives word, and its `measures` are words."),
        (Words, Undeclared, "scores", "It asks for the model 'judge'"),
        (Words, Counting, "repeatable", "Words changed at the second call"),
        (Words, Relative, "independence", "changes with the other prompts"),
        (Words, Divided, "empty samples", "a value is not finite"),
        (Longest, AsList, "indices", "Returns a list; expected indices of 23 pool examples"),
        (Longest, Drawn, "repeatable", "The indices changed"),
        (Longest, Empty, "unusual texts", "AssertionError"),
        (Longest, Encoding, "encoder", "It asks for vectors, and its `encodes` is False"),
        (Counts, Unruled, "rules", "which is no subclass of Rules"),
        (Counts, Partial, "runtime", "Its runtime has no `load`"),
    ],
)
def test_a_broken_promise_is_named(sound: type, broken: type, check: str, text: str) -> None:
    assert all(one.status == "ok" for one in run_checks(sound()))
    outcomes = {one.name: one for one in run_checks(broken())}
    assert outcomes[check].status == "failed"
    assert text in outcomes[check].found


# new


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["My_Loss"], "'My_Loss' cannot name a plugin; expected small letters, digits and hyphens: my-objective."),
        (["../loss"], "cannot name a plugin"),
        (["tailr"], "'tailr' is taken, by emobench"),
        (["pretrained"], "stands for a model as it is"),
        (["objectives"], "The module emobench_objectives is installed already"),
        (["there"], "there exists; give another name, or another place with --directory."),
        (["mine", "--kind", "statistic"], "did you mean 'statistics'? Known: logits, model, statistics."),
    ],
)
def test_a_name_that_cannot_be_used_writes_nothing(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    command("objectives", "new", *arguments).refused(sentence)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


NEW = {
    "mine": ("objectives", "statistics"),
    "a-margin-with-a-name-that-is-as-long-as-names-get": ("objectives", "logits"),
    "mine2": ("objectives", "model"),
    "my-kind": ("kinds", ""),
    "my-retriever": ("retrievers", ""),
    "my-words": ("metrics", ""),
    "my-judge": ("judges", ""),
}
"""Name of a new package -> its family and --kind."""


@pytest.fixture(scope="module")
def packages(command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new package of each family, each installed: beside it is what an installer writes."""
    folder = tmp_path_factory.mktemp("packages")
    for name, (plural, variant) in NEW.items():
        chosen = ("--kind", variant) if variant else ()
        done = command(plural, "new", name, *chosen, "--directory", folder).ok()
        assert f"pip install -e {folder / name}" in done.out
        project = tomllib.loads((folder / name / "pyproject.toml").read_text())["project"]
        info = folder / name / f"{project['name'].replace('-', '_')}-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
        lines = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{key} = {module}" for key, module in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def test_new_packages_are_clean_and_mark_the_tests_of_the_example(packages: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    for words in (["check", "--extend-select", "E501,B,UP,RUF"], ["format", "--check"]):
        done = subprocess.run([ruff, *words, "--no-cache", packages], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    for name, (plural, _) in NEW.items():
        (tests,) = (packages / name / "tests").glob("*.py")
        kept, mark, example = tests.read_text().partition("# What follows tests the example")
        assert mark
        assert "def test_contract" in kept
        assert "def test_" in example
        readme = (packages / name / "README.md").read_text()
        assert f"example, and fail once the {families()[plural].name} is another: replace them" in readme


@pytest.mark.slow
def test_new_packages_are_installed_and_pass_their_own_tests(packages: Path, tmp_path: Path) -> None:
    """Each package's own tests run the checks of `emobench FAMILY check`."""
    places = [str(packages / name) for name in NEW]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = ["pytest", "-p", "no:cacheprovider", "-W", "error", "--quiet", "--rootdir", str(tmp_path)]
    for words in ([*command, *places], ["emobench", "metrics", "check", "my-words"]):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("my-words: 5 ok.\n")


def test_a_package_here_that_is_not_installed_is_told_how(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    for plural, known in (("metrics", "mauve"), ("objectives", "emo"), ("judges", "pandalm")):
        family = families()[plural].name
        name = f"my-{family}"
        command(plural, "new", name).ok()
        for given in (name, f"./{name}"):
            told = f"The {family} '{name}' is not installed: pip install -e ./{name}, and give its name, {name}."
            command(plural, "check", given).refused(told)
        (tmp_path / known).mkdir()
        command(plural, "check", f"./{known}").refused(f"'./{known}' is a path; expected the name of the {family}")
        command(plural, "check", "./bare").refused(f"'./bare' is a path; expected the name of an installed {family}: ")


OWNERS = (
    emobench.WeightedLikelihood,
    emobench,
    emobench.testing,
    emobench.SetupContext,
    emobench.StatisticsObjective,
    emobench.DenseTargetObjective,
    Tensor,
)
"""Where the names on the page on objectives are from."""


def test_the_page_on_objectives_names_what_there_is() -> None:
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
