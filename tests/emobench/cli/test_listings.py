"""What there is: every list is a table for people and one JSON document for programs, and says the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import to_plain
from emobench.models.catalog import CATALOG
from emobench.registry import find_recipe, find_suite, find_task, objective_names, suite_names, task_files, task_names
from emobench.runs.inspect.settings import meanings_of_settings

NAMES = {"objectives": objective_names(), "tasks": task_names(), "suites": suite_names(), "models": list(CATALOG)}


@pytest.mark.parametrize("group", NAMES)
def test_a_list_names_all_there_is(command: Callable[..., Any], group: str) -> None:
    plain, found = command(group, "list"), command(group, "list", "--json")
    assert (plain.code, plain.err, found.code, found.err) == (0, "", 0, "")
    assert [row["name"] for row in found.json] == NAMES[group]
    for name in NAMES[group]:
        assert any(line.split()[:1] == [name] for line in plain.out.splitlines())


@pytest.mark.parametrize(("group", "file"), [("tasks", "sst2.yaml"), ("suites", "nlu-tiny.yaml")])
def test_a_broken_file_of_a_plugin_is_named_and_the_others_listed(
    command: Callable[..., Any], group: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / group).mkdir()
    (tmp_path / group / "broken.yaml").write_text("name: broken\nkind: none of ours\n")
    (tmp_path / group / "no-yaml.yaml").write_text("name: [")
    found = {**task_files._tasks_plugins(), "other": [tmp_path]}
    monkeypatch.setattr(task_files, "_tasks_plugins", lambda: found)
    done = command(group, "list", "--json").ok()
    assert [row["name"] for row in done.json] == NAMES[group]
    first, second = done.err.splitlines()
    assert first.startswith("skipped: ")
    assert f"{tmp_path}/{group}/broken.yaml" in first
    assert f"{tmp_path}/{group}/no-yaml.yaml" in second
    assert file.removesuffix(".yaml") in command(group, "list").out


@pytest.mark.parametrize("width", ["80", "120"])
def test_names_and_protocols_stay_in_one_piece(
    command: Callable[..., Any], width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    tasks = command("tasks", "list").out
    for name in NAMES["tasks"]:
        (line,) = (line for line in tasks.splitlines() if line.split(" ")[0] == name)
        assert find_task(name).protocol_id in line.split()
    suites = command("suites", "list").out
    for name in NAMES["suites"]:
        (line,) = (line for line in suites.splitlines() if line.split(" ")[0] == name)
        assert (find_suite(name).model or "") in line
    assert max(map(len, [*tasks.splitlines(), *suites.splitlines()])) <= int(width)


@pytest.mark.parametrize("width", ["80", "120"])
def test_models_are_in_groups_and_their_names_in_one_piece(
    command: Callable[..., Any], width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setattr("emobench.cli.listings.installed_pieces", lambda packaged: None)
    lines = command("models", "list").ok().out.splitlines()
    assert max(map(len, lines)) <= int(width)
    places = {}
    for alias in CATALOG.values():
        (places[alias.name],) = (place for place, line in enumerate(lines) if line.split()[:1] == [alias.name])
        assert alias.source in lines[places[alias.name]].split()
    made, hub = (next(i for i, line in enumerate(lines) if line.startswith(title)) for title in ("Made", "On the"))
    assert made < places["tiny-oracle"] < hub < places["gpt2"]
    assert not any(line.startswith("Installed here") for line in lines)
    monkeypatch.setattr("emobench.cli.listings.installed_pieces", lambda packaged: [])
    lines = command("models", "list").ok().out.splitlines()
    assert lines[0].startswith("Installed here")
    assert any(line.startswith("smollm2-135m-instruct ") for line in lines[: lines.index("")])


def test_a_task_is_shown_with_every_rule_of_a_protocol(command: Callable[..., Any]) -> None:
    shown = command("tasks", "show", "lm-quick", "--protocol", "paper", "--json").json
    task = find_task("lm-quick", protocol="paper")
    assert shown["protocol"] == task.protocol_id
    assert shown["rules"] == to_plain(task.protocol)
    plain = command("tasks", "show", "lm-quick", "--protocol", "paper").out
    assert "  generation.sampling.samples = 5\n" in plain
    assert task.protocol_id in plain
    assert command("tasks", "show", "lm-quick", "--protocol", "papr").code == 2


def test_the_text_of_a_task_shows_empty_texts_and_leaves_known_rows_out(command: Callable[..., Any]) -> None:
    plain = command("tasks", "show", "trec").out
    assert "  icl.header = ''\n" in plain
    assert "  icl.separator = '\\n'\n" in plain
    assert "golden" not in plain
    assert command("tasks", "show", "trec", "--json").json["dataset"]["golden"]


def test_a_suite_is_shown_with_every_value_in_force(command: Callable[..., Any]) -> None:
    shown = command("suites", "show", "lm-quick", "--json").json
    settings = find_suite("lm-quick").runs[0].settings
    assert shown["runs"][0]["recipe"] == to_plain(find_recipe("lm-finetune", settings))
    assert shown["runs"][0]["recipe"]["epochs"] == settings["epochs"] != find_recipe("lm-finetune").epochs
    plain = command("suites", "show", "lm-quick").out
    assert "  recipe.epochs = 1.0\n" in plain
    for setting in ("recipe.clip", "recipe.schedule"):
        assert plain.partition(f"  {setting} = ")[2].splitlines()[1].strip() in meanings_of_settings()[setting]
    assert "recipe.name" not in plain
    assert command("suites", "show", "lm").code == 2


def test_doctor_says_what_is_here(command: Callable[..., Any]) -> None:
    rows = {row["what"]: row["state"] for row in command("doctor", "--json").json}
    from importlib.metadata import version

    assert rows["torch"] == version("torch")
    assert rows["objective emo"] == rows["tasks builtin"] == "ok"
    assert "objective emo" in command("doctor").out


def test_a_model_saved_as_bin_is_converted_and_can_be_used(
    command: Callable[..., Any], small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    import torch
    from safetensors.torch import load_file

    shutil.copytree(small_model, tmp_path / "bin", ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(small_model / "model.safetensors")
    torch.save(weights, tmp_path / "bin" / "pytorch_model.bin")
    done = command("models", "convert", tmp_path / "bin", tmp_path / "out")
    assert (done.code, done.out) == (0, f"Wrote {tmp_path}/out; use it as --model {tmp_path}/out.\n")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    command("models", "convert", tmp_path / "bin", tmp_path / "out").refused("exists; give a folder that does not")
    command("models", "convert", "no-such", tmp_path / "new").refused(
        "no-such is neither a GGUF file nor a folder with"
    )
    monkeypatch.setenv("COLUMNS", "20")  # a script reads it: no width breaks it
    assert command("models", "path", tmp_path / "out").ok().out == f"{(tmp_path / 'out').resolve()}\n"
    command("models", "path", "gpt2-larg").refused("did you mean 'gpt2-large'")


def test_an_empty_board_says_so_and_an_absent_one_is_no_board(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("leaderboard", "show", "--leaderboard", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"`emobench run --leaderboard {tmp_path}` records a first" in done.out
    assert command("leaderboard", "show", "--leaderboard", tmp_path, "--json").json["groups"] == []
    command("leaderboard", "show", "--leaderboard", tmp_path / "none").refused(
        f"There is no leaderboard {tmp_path / 'none'}"
    )


def test_an_altered_entry_is_named_and_skipped(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "nlu-v1").mkdir()
    (tmp_path / "nlu-v1" / "x.json").write_text('{"schema": 1}')
    done = command("leaderboard", "show", "--leaderboard", tmp_path, "--json")
    assert (done.code, done.json["groups"]) == (0, [])
    assert f"skipped: {tmp_path}/nlu-v1/x.json" in done.err
