"""Of paths only the last part is published; hub ids, units, markers and addresses stay."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from emobench.leaderboard.private_paths import published, published_command, published_value, without_paths


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/runs/x.jsonl: cannot be read", "./x.jsonl: cannot be read"),
        ("no file (~/secret/data/ag_news.test.jsonl)", "no file (./ag_news.test.jsonl)"),
        ("~me/x and ../up/y and ./here/z", "./x and ./y and ./z"),
        ("local: /mnt/disk 1/x", "local: ./disk 1/x"),
        ('{"cost":"/a/b/c","n":1}', '{"cost":"./c","n":1}'),
        ("emo(cost=/a/b/gpt2)+mle", "emo(cost=./gpt2)+mle"),
        ("hub: org/name@0123, rouge1/rougeL, sst2/accuracy 3/4", None),
        ("https://example.org/a/b and [/INST] </s> and / or /", None),
        ("", None),
    ],
)
def test_texts(text: str, shown: str | None) -> None:
    assert without_paths(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/home/me/my models/small", "./small"),
        ("~/losses/mine.py:Loss(gamma=1)", "./mine.py:Loss(gamma=1)"),
        ("losses/mine.py:Loss", "./mine.py:Loss"),
        ("0.5*my dir/a.py:A + 0.5*emo(cost='/x/y/z')", "0.5*./a.py:A + 0.5*emo(cost='./z')"),
        ("EleutherAI/gpt-neo-1.3B", "EleutherAI/gpt-neo-1.3B"),
        ("tailr(gamma=0.2)", "tailr(gamma=0.2)"),
        ("[0,1,2]", "[0,1,2]"),
    ],
)
def test_values(value: str, shown: str) -> None:
    assert published_value(value) == shown


def test_a_folder_that_is_here_is_one_without_a_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert published_value("models/small") == "./small"
    assert published_value("models/other") == "models/other"


def test_a_command_keeps_its_options_and_settings() -> None:
    given = "emobench run --model /a/b/m --data-dir secret --runs=~/r --leaderboard x --set recipe.epochs=2 --seed 0 "
    given += "--set oracle.model=~/m/large --objective 'emo(cost=\"/a/b c/d\")' --quiet"
    assert shlex.split(published_command(shlex.split(given))) == [
        *("emobench", "run", "--model", "./m", "--data-dir", "DIR", "--runs=DIR", "--leaderboard", "DIR"),
        *("--set", "recipe.epochs=2", "--seed", "0", "--set", "oracle.model=./large"),
        *("--objective", 'emo(cost="./b c/d")', "--quiet"),
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "judge.url=https://host/sk-secret/v1",
        "judge.url = https://host/token=secret",
        'judge={name: x, "url": "https://host/v1%3Fkey=secret, and more", model: y}',
        "judge={url: https://host/secret}",
    ],
)
@pytest.mark.parametrize("form", ["--set {}", "--set={}"])
def test_a_command_has_no_address_of_an_endpoint_in_any_form(setting: str, form: str) -> None:
    given = ["emobench", "run", *form.format("SETTING").split(), "--seed", "0"]
    shown = published_command([word.replace("SETTING", setting) for word in given])
    assert "secret" not in shown
    assert "host" not in shown
    assert shown.count("URL") == 1
    assert len(shlex.split(shown)) == len(given)
    assert ("model: y" in shown) == ("model: y" in setting)


def test_nested_values() -> None:
    assert published({"a": ["/x/y/z", 1, None], "b": {"c": 0.5}}) == {"a": ["./z", 1, None], "b": {"c": 0.5}}
