"""What `import emobench` offers, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import emobench
from emobench import objectives
from emobench.kinds.icl.retrieval import retriever

OF_KINDS = {
    "AuxiliaryModel",
    "Cost",
    "GeneratedTexts",
    "KeyFacts",
    "Kind",
    "Measure",
    "Metric",
    "MetricContext",
    "MetricGroup",
    "Rules",
    "Runtime",
    "Score",
    "Scored",
    "Subject",
    "Task",
    "load_texts",
}
"""For packages with a kind of task or a metric."""
OF_LIBRARY = {"Attached", "ObjectiveLoss", "attach", "compute_loss_func", "objective"}
"""For trainings of one's own."""
OF_JUDGES = {"GradeJudge", "Judge", "JudgeReply", "JudgeRequest", "Pair", "PairJudge"}
"""For packages with a judge of responses."""
OF_RESULTS = {"Compared", "Results", "compare", "evaluate", "load_board", "run"}
"""For notebooks."""
OFFERED = (
    OF_JUDGES
    | OF_KINDS
    | OF_LIBRARY
    | OF_RESULTS
    | {
        "CostEmbedding",
        "DenseTargetObjective",
        "Family",
        "GroundCost",
        "KnownLanguage",
        "LogitsObjective",
        "ModelObjective",
        "Objective",
        "RetrievalContext",
        "Retriever",
        "SetupContext",
        "Snapshot",
        "SnapshotObjective",
        "StatisticsObjective",
        "Teacher",
        "TokenStatistics",
        "UnitLosses",
        "WeightedLikelihood",
        "hookimpl",
        "objective_loss",
        "param",
    }
)


def test_all_is_what_is_offered() -> None:
    assert set(emobench.__all__) == OFFERED
    assert list(emobench.__all__) == sorted(emobench.__all__, key=lambda name: (name.islower(), name))
    assert set(dir(emobench)) == OFFERED | {"__version__"}
    for name in OFFERED - OF_JUDGES - OF_KINDS - OF_LIBRARY - OF_RESULTS - {"Family", "hookimpl"}:
        assert getattr(emobench, name) is getattr(retriever if "Retriev" in name else objectives, name)


def test_a_star_import_gives_all_of_it() -> None:
    names: dict[str, object] = {}
    exec("from emobench import *", names)
    assert names.keys() - {"__builtins__"} == OFFERED


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known() -> None:
    with pytest.raises(
        AttributeError, match=r"module 'emobench' has no attribute 'Objectiv'; it offers Attached, AuxiliaryModel, "
    ):
        emobench.Objectiv  # noqa: B018


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert emobench.__version__ == version("emobench")
    citation = Path(__file__).parents[2] / "CITATION.cff"
    assert yaml.safe_load(citation.read_text())["version"] == emobench.__version__


HEAVY = ("torch", "transformers", "datasets", "numpy", "scipy", "peft", "accelerate", "mauve", "faiss", "pyarrow")


def modules_after(code: str) -> list[str]:
    ending = "import json, sys; print(json.dumps([m for m in sys.modules if '.' not in m]))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{ending}"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "module",
    [
        "emobench",
        "emobench.core.settings",
        "emobench.core.errors",
        "emobench.core.family",
        "emobench.registry",
        "emobench.tasks.spec",
        "emobench.leaderboard.store",
        "emobench.models.catalog",
        "emobench.data.sources",
        "emobench.cli",
        "emobench_tasks",
    ],
)
def test_modules_that_answer_at_once_import_nothing_heavy(module: str) -> None:
    assert not set(HEAVY[:3]) & set(modules_after(f"import {module}"))


HELP = """
import sys
from emobench.cli import main
sys.argv = ["emobench", {argument!r}]
try:
    main()
except SystemExit as stopped:
    assert not stopped.code
"""


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_nothing_heavy(argument: str) -> None:
    assert not set(HEAVY) & set(modules_after(HELP.format(argument=argument)))


def test_help_answers_in_half_a_second() -> None:
    """CPU time of the child, best of three: the clock on the wall of a loaded machine proves nothing."""
    import resource

    script = Path(sys.executable).with_name("emobench")
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    for command in ("run", "train", "evaluate", "objectives", "tasks", "suites", "models", "leaderboard", "doctor"):
        assert f" {command} " in done.stdout
    assert min(times) < 0.5, times
