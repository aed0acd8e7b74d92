"""`emobench rerun`: an entry's own record gives the plan that made it, of every kind of task, and its numbers again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import build, to_plain
from emobench.leaderboard.entry import ROUNDING, Entry, new_entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.store import Leaderboard
from emobench.registry import kind_names, load_kind
from emobench.reproduce.rerun import agreements, request_of, run_keys
from emobench.runs.execution.record import data_of
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request

TINY = ("--set", "recipe.max_length=32", "--set", "recipe.max_tokens=1024", "--limit", 8)
TEXTS = ("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8")
WRITTEN = (*("--suite", "lm-quick", "--objective", "tailr(gamma=0.2)", "--seed", 3, "--seed", 4), *TINY, *TEXTS)
WRITTEN = (*WRITTEN, "--set", "mauve.seeds=[0]")
OWN_TASK = """task: own_choice
dataset_path: json
dataset_kwargs: {data_files: {train: FOLDER/rows.jsonl, test: FOLDER/rows.jsonl}}
test_split: test
fewshot_split: train
output_type: multiple_choice
doc_to_text: "{{text}} is"
doc_to_choice: ["bad", "very good"]
doc_to_target: label
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
OWN_SUITE = """name: own-suite
version: 2
runs:
  - {recipe: lm-finetune, settings: {corpus: other}, tasks: [lm-quick], lm_eval: [own_choice]}
"""


@dataclass(frozen=True)
class Job:
    """A folder of runs and a board, and what their entries do not tell: where things are."""

    command: Callable[..., Any]
    folder: Path
    model: Path
    data: tuple[Path, ...]
    suite: Path | None = None

    def run(self, *given: object, verb: str = "run") -> Entry:
        done = self.command(verb, *given, *self._places(), "--model", self.model, "--quiet", "--json").ok()
        return select(done.json["entries"][0]["id"], self.folder / "board")[0]

    def again(self, entry: Entry, *given: object) -> Any:
        suite = ("--suite", self.suite) if self.suite else ()
        return self.command("rerun", entry.id, *suite, "--model", self.model, *self._places(), *given)

    def keys(self, entry: Entry, **given: Any) -> list[str] | None:
        """Return the keys that the runs of a rerun would have."""
        request = Request(
            suite=str(self.suite or entry.suite.name),
            model=str(self.model),
            data_dirs=self.data,
            runs=self.folder / "runs",
            offline=True,
            **given,
        )
        repeats = request_of(entry, request)
        plain = json.loads(json.dumps(to_plain(repeats)))  # as a planned stage keeps it, for another process
        assert build(Request, plain, "request") == repeats
        return run_keys(make_plan(repeats))

    def _places(self) -> tuple[Any, ...]:
        data = [word for folder in self.data for word in ("--data-dir", folder)]
        return (*data, "--runs", self.folder / "runs", "--leaderboard", self.folder / "board", "--offline")


@pytest.fixture(scope="module")
def job(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Job:
    return Job(command, tmp_path_factory.mktemp("job"), small_model, (small_data,))


@pytest.fixture(scope="module")
def written(job: Job) -> Entry:
    """An entry of kind `generation`, with two seeds, a parameter, and changed rules."""
    return job.run(*WRITTEN)


def _same(job: Job, entry: Entry, *given: object, **more: Any) -> str:
    """Assert that a rerun has the keys of an entry, and return the kind of its tasks."""
    assert job.keys(entry, **more) == [run.key for run in entry.runs]
    planned = job.again(entry, *given, "--dry-run", "--reuse", "--json").ok()
    assert {line["state"] for line in planned.json["plan"]} == {"finished"}
    assert "nothing different here." in planned.err
    (kind,) = {json.loads(path.read_text())["task"]["kind"] for path in _facts(job, entry)}
    return kind


def _facts(job: Job, entry: Entry) -> list[Path]:
    found = []
    for run in entry.runs:
        stage = json.loads((job.folder / "runs/examples" / run.key / "stage.json").read_text())
        found += [job.folder / "runs/score" / key / "stage.json" for key in stage["scores"]]
    return found


def test_a_rerun_of_generation_has_the_same_keys(job: Job, written: Entry) -> None:
    kinds = {_same(job, written)}
    other = job.run(*WRITTEN[:4], "--seed", 0, "--set", "corpus=other", "--set", "recipe.lora.rank=4", *WRITTEN[8:])
    assert other.provenance.data.keys() >= {"other.train", "other.test"}
    kinds.add(_same(job, other))
    combined = ("--suite", "lm-quick", "--objective", "0.5*emo + 0.5*tailr(gamma=0.2)", "--seed", 0)
    kinds.add(_same(job, job.run(*combined, *WRITTEN[8:])))
    kinds.add(
        _same(job, job.run("--suite", "lm-quick", "--limit", 8, *TEXTS, "--set", "mauve.seeds=[0]", verb="evaluate"))
    )
    assert kinds == {"generation"}


def test_a_rerun_of_icl_has_the_same_keys(
    command: Any, byte_model: Path, labelled: Path, small_data: Path, tmp_path: Path
) -> None:
    job = Job(command, tmp_path, byte_model, (labelled, small_data))
    given = ("--suite", "nlu", "--set", "tasks=sst2,trec", "--set", "icl.retriever=bm25", "--set", "icl.shots=3")
    trained = ("--objective", "mle", "--seed", 1, "--set", "corpus=wikitext2", *TINY, "--set", "recipe.lora=false")
    assert _same(job, job.run(*given, *trained)) == "icl"


def test_a_rerun_of_the_surrogate_has_the_same_keys(job: Job) -> None:
    given = ("--suite", "figure-2", "--set", "tasks=wikitext2", "--set", "surrogate.max_tokens=48")
    entry = job.run(*given, "--set", "surrogate.model=pretrained", verb="evaluate")
    assert _same(job, entry) == "surrogate"
    folder = job.run(*given, "--set", f"surrogate.model={job.model}", verb="evaluate")
    job.again(folder, "--dry-run").refused("rule model was a folder", "--set surrogate.model=FOLDER")
    place = {"surrogate": {"model": str(job.model)}}
    assert _same(job, folder, "--set", f"surrogate.model={job.model}", settings=place) == "surrogate"


@pytest.mark.slow
def test_a_rerun_of_the_oracle_has_the_same_keys(command: Any, tmp_path: Path) -> None:
    from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

    write_untrained(TINY_MODELS["tiny-oracle"], tmp_path / "model")
    job = Job(command, tmp_path, tmp_path / "model", ())
    given = ("--suite", "oracle-language", "--objective", "emo", "--seed", 0, "--set", "mauve.seeds=[0]")
    assert _same(job, job.run(*given, "--set", "recipe.max_tokens=4096", "--limit", 8)) == "oracle"


def test_a_rerun_of_lm_eval_and_of_a_suite_in_a_file_has_the_same_keys(
    command: Any, byte_model: Path, small_data: Path, tmp_path: Path
) -> None:
    (tmp_path / "own_choice.yaml").write_text(OWN_TASK.replace("FOLDER", str(tmp_path)))
    rows = [{"text": f"film {i} of {i * i}", "label": int(i % 3 == 0)} for i in range(10)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "own-suite.yaml").write_text(OWN_SUITE)
    job = Job(command, tmp_path, byte_model, (small_data,), tmp_path / "own-suite.yaml")
    include = ("--set", f"lm_eval.include={tmp_path}", "--trust-remote-code")
    trained = ("--objective", "mle", "--seed", 0, "--set", "tasks=lm-eval:own_choice", *TINY)
    entry = job.run("--suite", job.suite, *include, *trained, "--set", "lm_eval.num_fewshot=1")
    settings = {"lm_eval": {"include": str(tmp_path)}}
    assert _same(job, entry, *include, settings=settings, trust_remote_code=True) == "lm_eval"
    job.command("rerun", entry.id, "--model", byte_model, "--leaderboard", tmp_path / "board").refused("own-suite")


def test_a_rerun_of_instruct_has_the_same_keys(command: Any, byte_model: Path, tmp_path: Path) -> None:
    rows = [{"instruction": f"Say {i}.", "input": "", "reference": f"{i}"} for i in range(4)]
    (tmp_path / "instructions.test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rows = [{"instruction": f"Name {i}.", "input": "", "output": f"It is {i}."} for i in range(8)]
    (tmp_path / "responses.train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    job = Job(command, tmp_path, byte_model, (tmp_path,))
    given = ("--suite", "instruct", "--objective", "mle", "--seed", 0, "--set", "instruct.max_new_tokens=4")
    trained = ("--set", "recipe.epochs=1", "--set", "recipe.batch=4", "--set", "recipe.max_length=200")
    assert _same(job, job.run(*given, *trained)) == "instruct"


def test_every_kind_has_its_test() -> None:
    tested = {"generation", "icl", "instruct", "lm_eval", "oracle", "surrogate"}
    assert {name for name in kind_names() if load_kind(name).name} == tested


def test_a_model_that_is_not_made_yet_leaves_keys_open(tmp_path: Path) -> None:
    """A rerun makes the tiny model anew; until then, what it reads is known, and what is made of it is not."""
    request = Request(suite="oracle-language", objectives=("emo",), seeds=(0,), runs=tmp_path)
    plan = make_plan(request)
    assert run_keys(plan) is None
    assert data_of(plan.rows[0]).keys() >= {"oracle-target.train", "oracle-target.test"}


def test_it_computes_anew_and_says_what_agrees(job: Job, written: Entry) -> None:
    before = set((job.folder / "runs/train").iterdir())
    done = job.again(written, "--json").ok()
    place = job.folder / "runs" / "rerun" / f"{written.id}-1"
    assert len(list((place / "train").glob("*/training.json"))) == 2
    assert set((job.folder / "runs/train").iterdir()) == before
    assert done.json["agrees"] is True
    assert done.json["differences"] == []
    assert {one["verdict"] for one in done.json["metrics"]} == {"exactly"}
    assert {one["metric"] for one in done.json["metrics"]} == written.metrics.keys()
    assert [entry.id for entry in Leaderboard(job.folder / "board").entries()].count(written.id) == 1
    assert json.loads((place / "compared.json").read_text())["entry"] == written.id
    shown = job.again(written, "--reuse").ok()
    assert f"{len(written.metrics)} of {len(written.metrics)} metrics of {written.id} agree" in shown.out
    assert "nothing different here." in shown.err
    assert (place.with_name(f"{written.id}-2") / "compared.json").is_file()
    assert not (place.with_name(f"{written.id}-2") / "train").exists()


def _altered(job: Job, entry: Entry, name: str, change: float, **more: Any) -> Entry:
    """Record what an entry would be with another mean of a metric."""
    plain = to_plain(entry)
    metric = plain["metrics"][name]
    metric["values"] = [value * (1 + change) for value in metric["values"]]
    metric["mean"] *= 1 + change
    fields = {key: value for key, value in {**plain, **more}.items() if key not in ("id", "schema")}
    made = new_entry(fields)
    Leaderboard(job.folder / "board").append(made)
    return made


def test_a_number_that_is_another_one_is_an_exit_code(job: Job, written: Entry) -> None:
    name = "lm-quick/ppl_test"
    wrong = job.again(_altered(job, written, name, 0.5), "--reuse", "--json", "--quiet")
    assert wrong.code == 1
    verdicts = {one["metric"]: one["verdict"] for one in wrong.json["metrics"]}
    assert verdicts.pop(name) == "differs"
    assert set(verdicts.values()) == {"exactly"}
    job.again(_altered(job, written, name, 1e-9), "--reuse", "--json", "--quiet").ok()
    std, mean = written.metrics[name].std, written.metrics[name].mean
    assert std is not None
    assert std > 4 * ROUNDING * mean
    slightly = std / mean / 2
    assert job.again(_altered(job, written, name, slightly), "--reuse", "--quiet").code == 1
    packages = {**written.provenance.packages, "torch": "1.0"}
    environment = {**(written.provenance.environment or {}), "threads": "99, 1 between operators"}
    elsewhere = {**to_plain(written.provenance), "packages": packages, "environment": environment}
    done = job.again(_altered(job, written, name, slightly, provenance=elsewhere), "--reuse").ok()
    assert "packages.torch is" in done.err
    assert "was 1.0" in done.err
    assert "environment.threads is" in done.err
    assert "was 99, 1 between operators" in done.err
    assert "within the spread over seeds" in done.out


def test_what_cannot_be_repeated_is_a_sentence(
    job: Job, written: Entry, byte_model: Path, entry_of: Any, tmp_path: Path
) -> None:
    other = Job(job.command, job.folder, byte_model, job.data)
    other.again(written, "--dry-run").refused("its digest or commit is sha256:", "small with sha256:")
    board = Leaderboard(tmp_path / "board")
    imported = entry_of("emo", kind="imported", source={"cite": "results.json"})
    older = entry_of("emo", suite={"name": "lm-quick", "version": 9})
    for entry in (imported, older):
        board.append(entry)
    refused = {imported.id: "is imported, from results.json", older.id: "here is lm-quick v1"}
    for name, text in refused.items():
        job.command("rerun", name, "--leaderboard", board.root).refused(text)
    job.command("rerun", "emo", "--leaderboard", board.root).refused("names 2 entries", imported.id)
    unnamed = ("rerun", written.id, "--leaderboard", job.folder / "board", "--runs", job.folder / "runs")
    job.command(*unnamed).refused("small", "--model FOLDER")
    job.again(written, "--set", "recipe.epochs=2").refused("the entry decides it")
    job.again(written, "--set", "generation.prefix=5").refused("Task lm-quick has the protocol")


def test_a_stopped_rerun_goes_on_in_its_folder(job: Job, written: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("emobench.runs.run.record_row", stopped)
        assert job.again(written, "--quiet").code == 130
    folders = sorted((job.folder / "runs/rerun").glob(f"{written.id}-*"))
    (place,) = [folder for folder in folders if not (folder / "compared.json").exists()]
    times = {path: path.stat().st_mtime_ns for path in place.rglob("training.json")}
    assert len(times) == 2
    job.again(written, "--quiet").ok()
    assert {path: path.stat().st_mtime_ns for path in place.rglob("training.json")} == times
    assert (place / "compared.json").exists()
    shutil.rmtree(place)


def test_a_missing_metric_is_no_agreement(written: Entry) -> None:
    fewer = {name: metric for name, metric in written.metrics.items() if name != "lm-quick/ppl_test"}
    fields = {
        **to_plain(written),
        "metrics": to_plain(fewer),
        "families": {},
        "missing": {"lm-quick/ppl_test": "It failed."},
    }
    less = new_entry({key: value for key, value in fields.items() if key not in ("id", "schema")})
    (gone,) = [one for one in agreements(written, less) if one.verdict != "exactly"]
    assert (gone.verdict, gone.expected(elsewhere=True)) == ("missing now", False)
    (new,) = [one for one in agreements(less, written) if one.verdict != "exactly"]
    assert (new.verdict, new.expected(elsewhere=False)) == ("new", True)


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], True])
def test_a_numbered_recipe_without_settings_is_a_sentence(
    value: Any, command: Callable[..., Any], tmp_path: Path
) -> None:
    shipped = Path(__file__).parents[4] / "leaderboards" / "studies" / "smollm2"
    (entry,) = select("8055b2f60fd9", shipped)
    plain = {name: part for name, part in to_plain(entry).items() if name != "id"}
    changed = new_entry({**plain, "recipe": {"1. a": value}, "supersedes": None}, "changed")
    Leaderboard(tmp_path / "board").append(changed)
    command("rerun", changed.id, "--dry-run", "--leaderboard", tmp_path / "board").refused(changed.id, "1. a")
