"""Checkpoints of other programs: rows whose objective, recipe and seed the user declares."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emobench
from emobench.leaderboard.stats.series import no_replicates

SUITE = "lm-quick"
SMALL = {"generation.max_length": 32, "generation.prefix": 4, "generation.continuation": 8, "mauve.seeds": [0]}
SETTINGS = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


def _checkpoint(base: Path, folder: Path, seed: int, scale: float = 0.02) -> Path:
    """Write a model whose weights differ from those of its base by noise."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += scale * torch.randn(weight.shape, generator=generator)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


@pytest.fixture
def evaluate(
    command: Callable[..., Any], small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    given = ("--suite", SUITE, "--data-dir", small_data, "--limit", 12, "--offline", *SETTINGS)

    def run(model: Path, *arguments: object, form: tuple[str, ...] = ("--quiet", "--json")) -> Any:
        return command("evaluate", "--model", model, *given, *form, *arguments)

    return run


def test_checkpoints_of_another_program_are_rows_of_their_base(
    evaluate: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    entries = []
    for seed, objective in enumerate(("emo", "tailr(gamma=0.2)")):
        checkpoint = _checkpoint(small_model, tmp_path / f"ckpt{seed}", seed)
        declared = ("--from", small_model, "--trained-with", objective, "--seed", 7, "--recipe-name", "sft-v1")
        done = evaluate(checkpoint, *declared).ok()
        entries += done.json["entries"]
        assert evaluate(checkpoint, *declared).ok().json["entries"] == done.json["entries"]
    (as_it_is,) = evaluate(small_model).ok().json["entries"]
    emo, tailr = entries
    assert emo["model"] == tailr["model"] == as_it_is["model"]
    assert emo["recipe"] == {"name": "sft-v1", "declared": True, "dtype": "float32"}
    assert emo["seeds"] == [7] == [run["seed"] for run in emo["runs"]]
    assert tailr["objective"]["params"] == {"gamma": 0.2, "min_weight": 0.0}
    assert emo["objective"]["source_sha256"]
    board = emobench.load_board()
    assert len(board) == 3
    compared = board.compare("tailr", "emo", anyway=False)
    assert set(compared.frame.verdict.dropna()) == {"undetermined"}
    assert all("declared" in note for note in compared.notes if "outside" in note)
    assert board.compare("emo", "pretrained").comparisons


def test_a_checkpoint_is_told_what_was_pooled_and_what_to_compare(
    evaluate: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    said = []
    for seed, objective in ((0, "emo"), (1, "emo"), (0, "emo"), (0, "mle")):
        checkpoint = _checkpoint(small_model, tmp_path / f"{objective}{seed}", 2 * seed + len(said) // 3)
        declared = ("--from", small_model, "--trained-with", objective, "--seed", seed)
        told = evaluate(checkpoint, *declared, form=()).ok().err
        said.append([words in told for words in ("pooled with", "already", "emobench compare")])
        assert "cannot give" not in told  # the verdicts depend on the other checkpoints
    assert said == [[False] * 3, [True, False, False], [False, True, False], [False, False, True]]
    assert "  emobench compare 'emo(cost=pretrained)' mle --suite lm-quick" in told


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_an_adapter_is_a_checkpoint_and_a_model(
    evaluate: Callable[..., Any], small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "cache"))
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(small_model), config).save_pretrained("adapter")
    base = shutil.copytree(small_model, tmp_path / "base")
    declared = ("--from", base, "--trained-with", "mle", "--seed", 0)
    (entry,) = evaluate(Path("adapter"), *declared).ok().json["entries"]
    (alone,) = evaluate(Path("adapter")).ok().json["entries"]
    (as_it_is,) = evaluate(small_model).ok().json["entries"]
    assert entry["model"]["revision"] == as_it_is["model"]["revision"] != alone["model"]["revision"]
    assert {name: value["values"] for name, value in entry["metrics"].items()} == {
        name: value["values"] for name, value in alone["metrics"].items()
    }


def test_a_checkpoint_without_a_tokenizer_takes_that_of_its_base(
    evaluate: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    checkpoint = _checkpoint(small_model, tmp_path / "ckpt", 0)
    (whole,) = evaluate(checkpoint).ok().json["entries"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (checkpoint / name).unlink()
    declared = ("--from", small_model, "--trained-with", "mle", "--seed", 0)
    evaluate(checkpoint, *declared).refused("--tokenizer")
    (entry,) = evaluate(checkpoint, *declared, "--tokenizer", small_model).ok().json["entries"]
    for name, value in whole["metrics"].items():
        assert entry["metrics"][name]["values"] == value["values"]
    assert "tokenizer" not in entry["recipe"]
    (other,) = evaluate(checkpoint, "--tokenizer", small_model).ok().json["entries"]
    assert other["model"]["revision"] != whole["model"]["revision"]
    evaluate(checkpoint, "--tokenizer", "./nowhere").refused("--tokenizer", "./nowhere")
    evaluate(checkpoint, "--tokenizer", tmp_path).refused("--tokenizer", tmp_path)


def test_a_new_declaration_replaces_the_one_before(
    evaluate: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    checkpoint = _checkpoint(small_model, tmp_path / "ckpt", 0)
    evaluate(checkpoint).ok()  # as it is: another row
    declared = ("--from", small_model, "--trained-with", "emo")
    (first,) = evaluate(checkpoint, *declared, "--seed", 0).ok().json["entries"]
    assert first["recipe"]["name"] == "unnamed"
    declared = ("--from", small_model, "--trained-with", "dpo(beta=0.1)")  # emobench has none
    (second,) = evaluate(checkpoint, *declared, "--seed", 1, "--recipe-name", "chat").ok().json["entries"]
    assert (second["objective"]["name"], second["objective"]["params"]) == ("dpo", {"beta": 0.1})
    assert second["objective"]["source_sha256"] is None
    assert second["supersedes"] == first["id"]
    assert len(emobench.load_board()) == 2


def test_a_base_that_calls_itself_a_checkpoint_changed_no_weight(
    evaluate: Callable[..., Any], small_model: Path, small_data: Path
) -> None:
    made = emobench.evaluate(
        SUITE,
        model=str(small_model),
        base=str(small_model),
        trained_with="emo",
        seeds=[0],
        settings=SMALL,
        limit=12,
        data_dirs=[small_data],
        device="cpu",
    )
    (entry,) = made.entries
    assert "changed no weight" in str(no_replicates(entry, next(iter(entry.protocols))))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--trained-with", "emo", "--seed", 0), ["--from"]),
        (("--trained-with", "emo", "--from", "{base}"), ["--seed"]),
        (("--trained-with", "emo", "--from", "{base}", "--seed", 0, "--seed", 1), ["--seed", "2"]),
        (("--trained-with", "emo", "--from", "{base}", "--seed", 0, "--objective", "mle"), ["--objective"]),
        (("--trained-with", "emoo", "--from", "{base}", "--seed", 0), ["emoo", "emo"]),
        (("--trained-with", "mel", "--from", "{base}", "--seed", 0), ["mel", "mle"]),
        (("--trained-with", "pretrained", "--from", "{base}", "--seed", 0), ["pretrained"]),
        (("--trained-with", "emo", "--from", "{base}", "--seed", 0, "--recipe-name", " "), ["--recipe-name"]),
        (("--trained-with", "emo", "--from", "{base}", "--seed", 0, "--from-scratch"), ["--from-scratch"]),
        (("--recipe-name", "sft"), ["--trained-with"]),
        (("--from", "{base}"), ["--trained-with"]),
        (("--trained-with", "emo", "--from", "{bytes}", "--seed", 0), ["bytes", "not trained from"]),
        (("--trained-with", "emo", "--from", "./nowhere", "--seed", 0), ["./nowhere"]),
    ],
)
def test_wrong_declarations_are_refused(
    evaluate: Callable[..., Any],
    small_model: Path,
    byte_model: Path,
    tmp_path: Path,
    options: tuple[Any, ...],
    named: list[str],
) -> None:
    words = [str(word).format(base=small_model, bytes=byte_model) for word in options]
    evaluate(small_model, *words).refused(*named)
    assert not (tmp_path / "runs").exists()


def test_declared_rows_are_marked_wherever_they_are_shown(
    evaluate: Callable[..., Any], command: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    declared = ("--from", small_model, "--seed", 0, "--recipe-name", "sft-v1")
    for number, objective in enumerate(("emo", "dpo(beta=0.1)")):
        checkpoint = _checkpoint(small_model, tmp_path / f"ckpt{number}", number)
        evaluate(checkpoint, "--trained-with", objective, *declared).ok()
    evaluate(small_model).ok()
    assert "sft-v1 (declared)" in command("leaderboard", "show").ok().out
    assert "declared by the user" in command("compare", "emo", "dpo").ok().out
    command("leaderboard", "site", "page").ok()
    page = "".join(path.read_text() for path in (tmp_path / "page").rglob("*") if path.suffix in (".html", ".js"))
    assert "not trained" not in page
    entry = next(entry for entry in emobench.load_board().entries if entry.declared)
    for refused in (("curves", entry.id), ("rerun", entry.id), ("curves", "emo")):
        command(*refused).refused(refused[1])


def test_checkpoints_of_several_seeds_are_one_row(
    evaluate: Callable[..., Any], small_model: Path, tmp_path: Path
) -> None:
    declared = ("--from", small_model, "--recipe-name", "sft-v1")
    checkpoints = [_checkpoint(small_model, tmp_path / f"ckpt{seed}", seed) for seed in range(3)]
    entry: dict[str, Any] = {}
    for seed, checkpoint in enumerate(checkpoints):
        (entry,) = evaluate(checkpoint, "--trained-with", "emo", *declared, "--seed", seed).ok().json["entries"]
    assert entry["seeds"] == [0, 1, 2]
    (again,) = evaluate(checkpoints[0], "--trained-with", "emo", *declared, "--seed", 0).ok().json["entries"]
    assert again["id"] == entry["id"]
    for otherwise in (("emo", 3), ("mle", 0)):
        given = ("--trained-with", otherwise[0], *declared, "--seed", otherwise[1])
        evaluate(checkpoints[0], *given).refused(entry["id"], "seed 0 of emo")
    assert len(emobench.load_board()) == 1
    evaluate(checkpoints[1], "--trained-with", "mle", "--from", small_model, "--seed", 1).refused(entry["id"])
