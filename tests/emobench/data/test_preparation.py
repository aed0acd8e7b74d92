"""Zhang et al.'s preparation of WebText and WritingPrompts, on texts small enough to follow by eye."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from emobench.data import texts as preparation
from emobench.data.sources import Split
from emobench.data.texts import Fields, detokenized, webtext, writingprompts


def rows(**splits: list[Fields]) -> preparation.Rows:
    def of(split: Split) -> Iterable[Fields]:
        return splits[split]

    return of


def text(count: int, end: str = "") -> str:
    return " ".join(["w"] * count) + end


@pytest.mark.parametrize(("count", "kept"), [(50, False), (51, True), (999, True), (1000, False)])
def test_texts_of_over_50_and_under_1000_words_are_kept(count: int, kept: bool) -> None:
    some = rows(train=[(text(count),)], validation=[], test=[])
    assert list(webtext("test", some)) == ([text(count)] if kept else [])
    assert bool(list(writingprompts("train", rows(train=[("w", text(count - 1))])))) == kept


def test_a_text_is_one_line_and_a_carriage_return_ends_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They write the texts to a file and read its lines, after the lengths were looked at."""
    monkeypatch.setattr(preparation, "HELD_OUT", 0)
    some = rows(train=[(f" {text(30)}\n{text(30)}\r\n short\n",)], validation=[], test=[])
    assert list(webtext("train", some)) == [f"{text(30)} {text(30)}", "short"]


def test_marks_of_a_story_are_written_out_and_those_of_a_prompt_stay() -> None:
    story = f"``Yes,''<newline><newline>she said .\n{text(60)}"
    (found,) = writingprompts("train", rows(train=[(" [ WP ] `` A b \n", story)]))
    assert found == f'[WP] ``A b "Yes," she said. {text(60)}'


@pytest.mark.parametrize(
    ("tokens", "joined"),
    [
        ('He did n\'t say : " No . "', 'He did n\'t say: "No."'),
        ("( It 's $ 5 , you know ! )", "(It's $5, you know!)"),
        ("<newline>", "<newline>"),
        ("", ""),
    ],
)
def test_words_are_joined_as_by_moses(tokens: str, joined: str) -> None:
    """Written down from Moses's own script (`detokenizer.perl -l en -q`)."""
    assert detokenized(tokens) == joined
