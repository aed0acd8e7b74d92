"""The main job end to end, through the command line: train, evaluate, record, and reuse what is finished."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from emobench.runs.execution.execution import Execution

SMALL = (
    *("--suite", "lm-quick", "--limit", "30", "--offline", "--quiet"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "mauve.seeds=[0]"),
)
TRAINED = (*SMALL, "--set", "recipe.max_length=32", "--set", "recipe.learning_rate=1e-2")
SECONDARY = ("rep_2", "rep_3", "rep_4", "diversity", "distinct_1", "distinct_2", "distinct_3", "self_bleu")
MAIN = ("ppl_test", "entropy", "mauve", "mauve_star", "rouge1", "rouge2", "rougeL")
METRICS = {f"lm-quick/{name}" for name in (*MAIN, *SECONDARY)}
ROOT = Path(__file__).parents[4]
README = ROOT / "README.md"
JSON_SCHEMA = ROOT / "emobench" / "leaderboard" / "entry.schema.json"


@dataclass(frozen=True)
class Job:
    """A folder of runs and a board, and what a command that works there begins with."""

    command: Callable[..., Any]
    folder: Path
    model: Path
    data: Path

    def __call__(self, verb: str, *arguments: object) -> Any:
        places = ("--runs", self.folder / "runs")
        if verb != "train":
            places += ("--leaderboard", self.folder / "board")
        done = self.command(verb, "--model", self.model, "--data-dir", self.data, *places, *arguments, "--json").ok()
        return done.json

    def files(self, *kinds: str) -> dict[str, int]:
        """Return the files of the runs, of some kinds of stage, with their times of change."""
        roots = [self.folder / "runs" / kind for kind in kinds] or [self.folder]
        return {str(p): p.stat().st_mtime_ns for root in roots for p in sorted(root.rglob("*")) if p.is_file()}

    def board(self, *arguments: object) -> Any:
        places = ("--runs", self.folder / "runs", "--leaderboard", self.folder / "board")
        done = self.command("leaderboard", "show", *places, *arguments)
        assert (done.code, done.err) == (0, "")
        return done

    def shown(self, *arguments: object) -> list[str]:
        """Return the ids of the entries that the board shows."""
        return [entry["id"] for group in self.board("--json", *arguments).json["groups"] for entry in group["entries"]]


TWO = ("--objective", "mle", "--objective", "emo", "--seed", 0, "--seed", 1)


@pytest.fixture(scope="module")
def finished(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Job, Any]:
    """The main job, done: two objectives, two seeds."""
    job = Job(command, tmp_path_factory.mktemp("job"), small_model, small_data)
    return job, job("run", *TRAINED, *TWO)


@pytest.fixture
def again(finished: tuple[Job, Any], tmp_path: Path) -> Job:
    """A copy of what the main job left, for a test that adds to it."""
    job = finished[0]
    shutil.copytree(job.folder, tmp_path / "job")
    return Job(job.command, tmp_path / "job", job.model, job.data)


def test_the_main_job_records_an_entry_for_each_objective(finished: tuple[Job, Any]) -> None:
    job, found = finished
    assert [entry["objective"]["name"] for entry in found["entries"]] == ["mle", "emo"]
    schema = json.loads(JSON_SCHEMA.read_text())
    for entry in found["entries"]:
        jsonschema.validate(entry, schema)
        assert json.loads((job.folder / "board" / "lm-quick-v1" / f"{entry['id']}.json").read_text()) == entry
        assert entry["seeds"] == [0, 1]
        assert entry["missing"] == {}
        assert set(entry["metrics"]) == METRICS
        assert all(len(metric["values"]) == 2 for metric in entry["metrics"].values())
        assert {n: m["flags"] for n, m in entry["metrics"].items() if m["flags"]} == {
            "lm-quick/mauve": ["small_n"],
            "lm-quick/mauve_star": ["small_n"],
            **{f"lm-quick/{name}": ["secondary"] for name in SECONDARY},
        }
        assert entry["recipe"]["max_length"] == 32
        assert entry["model"]["source"] == "local folder"
        data = {name: text.partition(" ")[2] for name, text in entry["provenance"]["data"].items()}
        assert data.pop("prompts of lm-quick") == "of 40 texts; 10 not looked at"
        assert data == {f"wikitext2.{s}": f"(local: wikitext2.{s}.jsonl)" for s in ("train", "validation", "test")}
    keys = [run["key"] for entry in found["entries"] for run in entry["runs"]]
    assert len(set(keys)) == 4


def test_the_recorded_examples_are_those_on_disk_and_give_the_scores(finished: tuple[Job, Any]) -> None:
    job, found = finished
    for entry in found["entries"]:
        for seed, run in enumerate(entry["runs"]):
            content = (job.folder / "runs" / run["examples"]["path"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == run["examples"]["sha256"]
            rows = [json.loads(line) for line in content.decode().splitlines()]
            for metric in ("rouge1", "entropy", "ppl_test"):
                of_metric = [row for row in rows if row["metric"] == f"lm-quick/{metric}"]
                weight = sum(row["weight"] for row in of_metric)
                mean = sum(row["value"] * row["weight"] for row in of_metric) / weight
                expected = entry["metrics"][f"lm-quick/{metric}"]["values"][seed]
                assert math.exp(mean) if metric == "ppl_test" else mean == pytest.approx(expected, rel=1e-9)


def perplexity(folder: Path, data: Path) -> float:
    """Return PPL of the first 30 blocks of 32 tokens of the test texts, by transformers' own loss."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = (data / "wikitext2.test.jsonl").read_text().splitlines()
    ids = [i for line in lines for i in tokenizer(json.loads(line)["text"])["input_ids"]]
    blocks = torch.tensor(ids[: len(ids) // 32 * 32]).view(-1, 32)[:30]  # --limit
    with torch.no_grad():
        return float(model(input_ids=blocks, labels=blocks).loss.exp())


def test_trained_models_are_plain_folders_and_have_the_recorded_perplexity(finished: tuple[Job, Any]) -> None:
    job, found = finished
    recorded = sorted(v for e in found["entries"] for v in e["metrics"]["lm-quick/ppl_test"]["values"])
    folders = [path / "model" for path in (job.folder / "runs" / "train").iterdir()]
    assert sorted(perplexity(folder, job.data) for folder in folders) == pytest.approx(recorded, rel=1e-4)
    assert max(recorded) < 0.9 * perplexity(job.model, job.data)


def test_finished_stages_are_reused_and_no_entry_is_added(finished: tuple[Job, Any]) -> None:
    job, found = finished
    before = job.files()
    assert job("run", *TRAINED, *TWO) == found
    assert job.files() == before


def test_deleted_scores_are_made_again_from_the_generations(
    again: Job, finished: tuple[Job, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = list[int]()
    monkeypatch.setattr(Execution, "make_room", lambda _: forgotten.append(1))
    before, scores = again.files("train", "generate"), again.files("score")
    assert scores
    shutil.rmtree(again.folder / "runs" / "score")
    found = again("run", *TRAINED, *TWO)
    assert [entry["id"] for entry in found["entries"]] == [entry["id"] for entry in finished[1]["entries"]]
    assert again.files("train", "generate") == before
    assert again.files("score").keys() == scores.keys()
    assert not set(again.files("score").items()) & set(scores.items())
    assert not forgotten  # metrics keep their models where nothing is trained


def test_another_seed_supersedes_the_entry_of_fewer(again: Job, finished: tuple[Job, Any]) -> None:
    before, old = again.files("train"), finished[1]["entries"][0]
    one = ("--objective", "mle", "--seed", 0, "--seed", 1)
    more = again("run", *TRAINED, *one, "--seed", 2)["entries"][0]
    assert (more["seeds"], more["supersedes"]) == ([0, 1, 2], old["id"])
    assert more["metrics"]["lm-quick/ppl_test"]["values"][:2] == old["metrics"]["lm-quick/ppl_test"]["values"]
    after = again.files("train")
    assert {path: time for path, time in after.items() if path in before} == before
    assert len({Path(path).parts[-2] for path in after if path.endswith("training.json")}) == 5
    shown = again.shown()
    assert more["id"] in shown
    assert old["id"] not in shown
    files = again.files()
    # The seeds that an entry holds already are shown as that entry, and one by one they add no row.
    assert again("run", *TRAINED, *one)["entries"][0]["id"] == more["id"]
    assert again("run", *TRAINED, "--objective", "mle", "--seed", 1)["entries"][0]["id"] == more["id"]
    assert {path for path in again.files() if "board/" in path} == {path for path in files if "board/" in path}


def test_a_model_as_it_is(again: Job) -> None:
    entry = again("evaluate", *SMALL)["entries"][0]
    assert entry["objective"] == {"name": "pretrained", "version": "1", "params": {}, "source_sha256": None}
    assert (entry["seeds"], entry["recipe"], entry["cost"]["train_seconds"]) == ([], {"dtype": "float32"}, None)
    values = entry["metrics"]["lm-quick/ppl_test"]["values"]
    assert values == pytest.approx([perplexity(again.model, again.data)], rel=1e-4)
    files = again.files()
    assert again("evaluate", *SMALL)["entries"][0] == entry
    assert again("run", *SMALL, "--objective", "pretrained")["entries"][0] == entry
    assert again.files() == files


def _train_options() -> tuple[str, ...]:
    """`emobench train` has no suite, and so no evaluation options."""
    return ("--offline", "--quiet", "--set", "recipe.max_length=32", "--set", "recipe.epochs=1")


def test_the_board_as_table_markdown_and_json(finished: tuple[Job, Any]) -> None:
    job, found = finished
    ids = {entry["id"] for entry in found["entries"]}
    plain = job.board().out
    assert "lm-quick v1" in plain
    assert "mle" in plain
    assert "emo" in plain
    markdown = job.board("--markdown").out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.splitlines() if line.startswith("|")]
    for entry in found["entries"]:
        shown = f"{entry['metrics']['lm-quick/ppl_test']['mean']:.2f} ±"
        beside = next(row for row in rows if row[0].partition("(")[0].strip("* ") == entry["objective"]["name"])
        assert [cell for cell in beside if shown in cell], (shown, beside)
    assert set(job.shown()) == ids
    assert set(job.shown("--suite", "lm-quick", "--model", job.model.name)) == ids
    for option, name in (("--suite", "nlu"), ("--model", "gpt2")):
        job.command("leaderboard", "show", "--leaderboard", job.folder / "board", option, name).refused(
            f"There is no entry of the {option[2:]} '{name}'"
        )


def test_other_corpora_and_other_rules_are_not_compared(again: Job) -> None:
    one = ("--objective", "pretrained")
    base = again("run", *SMALL, *one)["entries"][0]
    other = again("run", *SMALL, *one, "--set", "corpus=other")["entries"][0]
    assert {name.split(".")[0] for name in other["provenance"]["data"]} == {"other", "prompts of lm-quick"}
    assert other["protocols"] == base["protocols"]
    assert other["metrics"]["lm-quick/ppl_test"]["values"] != base["metrics"]["lm-quick/ppl_test"]["values"]
    longer = again("run", *SMALL, *one, "--set", "generation.margin=1")["entries"][0]
    assert longer["protocols"] != base["protocols"]
    assert longer["protocols"]["lm-quick"].startswith("quick@")
    groups = again.board("--all", "--json").json["groups"]
    holding = [
        [i for i, g in enumerate(groups) if e["id"] in [x["id"] for x in g["entries"]]] for e in (base, other, longer)
    ]
    assert [len(found) for found in holding] == [1, 1, 1]
    assert len({found[0] for found in holding}) == 3


def test_a_dry_run_shows_the_plan_and_makes_nothing(finished: tuple[Job, Any], tmp_path: Path) -> None:
    job = Job(finished[0].command, tmp_path, finished[0].model, finished[0].data)
    plan = job("run", *TRAINED, *TWO, "--dry-run")["plan"]
    assert [line["stage"] for line in plan] == ["train"] * 4 + ["evaluate"] * 4
    assert {line["state"] for line in plan} == {"to do"}
    assert list(tmp_path.iterdir()) == []
    # 90 texts of 20 to 29 words in blocks of 32 tokens, 31 targets each, in batches of 32.
    lines = (job.data / "wikitext2.train.jsonl").read_text().splitlines()
    blocks = sum(len(json.loads(line)["text"].split()) for line in lines) // 32
    assert plan[0]["amount"] == f"{blocks * 31:,} target tokens, {-(-blocks // 32)} steps"
    done = finished[0]("run", *TRAINED, *TWO, "--dry-run")["plan"]
    assert {line["state"] for line in done} == {"finished"}


def test_from_scratch(again: Job) -> None:
    mle = again("train", "--from-scratch", "--objective", "mle", "--seed", 3, *_train_options())["trained"]
    assert [(row["objective"], row["seed"]) for row in mle] == [("mle", 3)]
    assert (Path(mle[0]["model"]) / "model.safetensors").is_file()
    initial = ("--objective", "emo(cost=initial)", "--objective", "emo")
    places = ("--runs", again.folder / "runs", "--model", again.model, "--data-dir", again.data)
    done = again.command("train", "--from-scratch", *initial, *_train_options(), *places)
    assert done.code == 2
    assert "this model starts from scratch; give another source, such as --objective 'emo(cost=gpt2)'" in done.err
    assert done.err.startswith("error: ")


def test_progress_goes_to_stderr_and_results_to_stdout(again: Job) -> None:
    places = ("--runs", again.folder / "runs", "--leaderboard", again.folder / "board", "--model", again.model)
    loud = tuple(word for word in SMALL if word != "--quiet")
    done = again.command("evaluate", *places, "--data-dir", again.data, *loud).ok()
    assert "pretrained, seed 0" in done.err
    assert "lm-quick v1" in done.out
    assert "lm-quick v1" not in done.err
    assert f"recorded in {again.folder / 'board'}" in done.err


def test_a_run_ends_with_where_things_are(again: Job) -> None:
    places = ("--runs", again.folder / "runs", "--leaderboard", again.folder / "board", "--model", again.model)
    given = ("run", *places, "--data-dir", again.data, *TRAINED, *TWO)
    assert "recorded in" not in again.command(*given).err
    loud = again.command(*(word for word in given if word != "--quiet")).ok()
    site, compare, curves = map(shlex.split, loud.err.splitlines()[-3:])
    assert compare[:4] == ["emobench", "compare", "emo(cost=pretrained)", "mle"]
    assert "undetermined" in again.command(*compare[1:]).out  # of two seeds
    assert site[:5] == ["emobench", "leaderboard", "site", "pages", "--open"]
    curves = again.command(*curves[1:])
    means = [line.split()[0] for line in curves.out.splitlines() if "mean of seeds 0, 1" in line]
    assert means == ["mle", "emo(cost=pretrained)"]
