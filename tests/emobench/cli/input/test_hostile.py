"""Values that would break a reader, fill the memory or run for years: a sentence, exit code 2, within seconds."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEEP = 5000
LONG = "x" * 300
BOMB = "{a: &a [x, x, x, x, x, x, x, x, x], " + ", ".join(f"b{i}: &b{i} [*a, *a, *a, *a]" for i in range(9)) + "}"
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("setting", "texts"),
    [
        (f"recipe.epochs={'[' * DEEP}", ["nested deeper than 64 levels"]),
        (f"recipe.epochs={'[' * DEEP}{']' * DEEP}", ["--set recipe.epochs: nested deeper than 64 levels"]),
        (f"recipe.lora={'{a: ' * DEEP}1{'}' * DEEP}", ["nested deeper than 64 levels"]),
        (f"recipe.corpus={BOMB}", ["--set recipe.corpus: an alias (`*name`) stands for other text"]),
        ("recipe.epochs=1e308", ["`epochs` is 1e+308; expected a number above 0, at most 100,000."]),
        (f"recipe.batch={'9' * 10_000}", ["`batch` is '999", "expected a whole number."]),
        ("generation.sampling.samples=99999999999", ["`samples` is 99999999999; expected at least 1, at most 10,000."]),
        ("generation.sampling.min_p=.nan", ["`min_p` is nan; expected"]),
        ("corpus=a\x00b", ["There is no corpus 'a\\x00b'"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_settings(dry: Callable[..., Any], setting: str, texts: list[str]) -> None:
    dry("--set", setting).refused(*texts)


@pytest.mark.parametrize(
    ("objective", "texts"),
    [
        ("+".join(["mle"] * 5000), ["a combination has 32 terms at most"]),
        (f"mle(a={'[' * DEEP}{']' * DEEP})", ["could not be read"]),
        (f"tailr(gamma={'9' * 10_000})", ["could not be read"]),
        ("tailr(gamma=1e999)", ["`gamma` is inf; expected"]),
        (f"{'-' * 10_000}1*mle", ["a weight of at least 0"]),
        ("(" * DEEP, ["could not be read (too many nested parentheses)"]),
        ("/dev/zero.py:Loss", ["There is no file"]),
        ("1e308*mle + 1e308*emo", ["`value` is 1e+308; expected at least 0, at most 1,000,000,000"]),
    ],
    ids=lambda value: value[:30].replace("\x00", "0") if isinstance(value, str) else "",
)
def test_objectives(dry: Callable[..., Any], objective: str, texts: list[str]) -> None:
    dry(objective=objective).refused(*texts)


@pytest.mark.parametrize("name", ["~nosuch/x", f"./{LONG}", "a/" * 3000, "\x00", "", "/dev/null"])
def test_model_names(dry: Callable[..., Any], name: str) -> None:
    dry(model=name).refused()
    dry("--set", f"oracle.model='{name}'" if name != "\x00" else "oracle.model=/none").refused()
    assert dry("--set", "coherence.encoder='" + name.replace("\x00", "/none") + "'").code == 2


@pytest.mark.parametrize("name", [LONG, "a/" * 3000])
def test_names_that_no_disk_holds(dry: Callable[..., Any], command: Callable[..., Any], name: str) -> None:
    for done in (
        dry(data_dir=name),
        command("leaderboard", "show", "--leaderboard", name),
        command("leaderboard", "import", name),
    ):
        done.refused()


def test_an_error_does_not_repeat_thousands_of_values(dry: Callable[..., Any]) -> None:
    done = dry(*["--seed", "0"] * 10_000)
    done.refused("--seed is given as 0, 0, ", "expected each seed once.")
    assert len(done.err) < 1000


def test_a_plan_of_more_stages_than_anybody_runs(dry: Callable[..., Any]) -> None:
    seeds = [word for seed in range(10_001) for word in ("--seed", seed)]
    dry(*seeds, seed=None).refused("lm-quick", "20,002", "20,000")


def changed(source: Path, folder: Path, **config: object) -> Path:
    shutil.copytree(source, folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    return folder


@pytest.mark.parametrize(
    ("config", "texts"),
    [
        ({"n_layer": 10**6}, ["`n_layer` is 1,000,000; expected 50,000 modules at most."]),
        ({"n_layer": "many"}, ["gives no causal model"]),
        ({"n_embd": 10**15}, ["gives no causal model"]),
        ({"vocab_size": 10**18}, ["gives no causal model"]),
        ({"model_type": "\x1b[31mred"}, ["gives no causal model", "\\x1b[31mred"]),
        ({"activation_function": "nonsense"}, ["gives no causal model"]),
        ({"quantization_config": 5}, []),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_configurations(
    dry: Callable[..., Any], small_model: Path, tmp_path: Path, config: dict[str, Any], texts: list[str]
) -> None:
    done = dry(model=changed(small_model, tmp_path / "m", **config))
    if texts:
        done.refused(*texts)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[" * DEEP),
        ("config.json", "5"),
        ("config.json", "\xff\xfe"),
        ("model.safetensors.index.json", '{"weight_map": 5}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": ["b"]}}'),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", '{"a":' * DEEP + "1" + "}" * DEEP),
    ],
    ids=lambda value: value[:24],
)
def test_files_of_a_model(dry: Callable[..., Any], small_model: Path, tmp_path: Path, file: str, content: str) -> None:
    model = changed(small_model, tmp_path / "m")
    (model / file).write_text(content, encoding="latin-1")
    if "index" in file:
        (model / "model.safetensors").unlink()
    dry(model=model).refused()


@pytest.mark.parametrize(
    "row",
    [
        '{"text": ' + "9" * 10_000 + "}",
        '{"text": ' + "[" * DEEP + "]" * DEEP + "}",
        '{"text": "\\ud800"}',
        "\x00",
    ],
    ids=lambda value: value[:24].replace("\x00", "0"),
)
def test_rows(dry: Callable[..., Any], small_data: Path, tmp_path: Path, row: str) -> None:
    folder = tmp_path / "data"
    shutil.copytree(small_data, folder)
    (folder / "wikitext2.test.jsonl").write_text('{"text": "bar bas"}\n' + row + "\n")
    dry(data_dir=folder).refused("wikitext2.test.jsonl", "2")


def test_what_is_no_regular_file_is_not_waited_for(
    dry: Callable[..., Any], command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "results_1.json"
    os.mkfifo(pipe)
    command("leaderboard", "import", pipe).refused("cannot be read (it is not a regular file)")
    command("leaderboard", "import", tmp_path).refused("cannot be read (it is not a regular file)")
    command("leaderboard", "import", "/dev/zero").refused("/dev/zero: cannot be read (it is not a regular file)")
    loss = tmp_path / "loss.py"
    os.mkfifo(loss)
    dry(objective=f"{loss}:Loss").refused("There is no file")
    for name in ("config.json", "tokenizer.json", "model.safetensors", "generation_config.json", "vocab.json"):
        model = shutil.copytree(small_model, tmp_path / name)
        (model / name).unlink(missing_ok=True)
        os.mkfifo(model / name)
        done = dry(model=model)
        assert done.code in (0, 2)
        assert "Traceback" not in done.err
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / "wikitext2.test.jsonl").unlink()
    os.mkfifo(data / "wikitext2.test.jsonl")
    assert dry(data_dir=data).code in (0, 2)


def test_a_pipe_among_tasks_is_refused(tmp_path: Path) -> None:
    from emobench.core.errors import ConfigError
    from emobench.tasks.yaml import read_yaml

    os.mkfifo(tmp_path / "task.yaml")
    with pytest.raises(ConfigError, match=r"task\.yaml cannot be read: it is not a regular file"):
        read_yaml(tmp_path / "task.yaml")
    for content, said in (
        ("a: " + "[" * DEEP, "nested deeper than 64 levels"),
        (f"a: {BOMB}", "an alias"),
        ("a: " + "x" * 2**21, "characters; expected 1,048,576 at most"),
    ):
        (tmp_path / "some.yaml").write_text(content)
        with pytest.raises(ConfigError, match=said):
            read_yaml(tmp_path / "some.yaml")


def test_suites_of_thousands(tmp_path: Path) -> None:
    from emobench.core.errors import ConfigError
    from emobench.tasks.spec import Suite, SuiteRun

    runs = tuple(SuiteRun(recipe="lm-finetune", tasks=()) for _ in range(20_000))
    with pytest.raises(ConfigError, match="more than 1,000 trainings and tasks"):
        Suite(name="s", version=1, runs=runs)
    with pytest.raises(ConfigError, match="more than 1,000 trainings and tasks"):
        Suite(name="s", version=1, runs=(SuiteRun(recipe="r", tasks=tuple(map(str, range(1000)))),))
