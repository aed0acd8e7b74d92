"""ROUGE: rouge-score's own numbers, and values that can be counted by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from emobench.core.errors import MetricError
from emobench.metrics.repetition import distinct, repetition, self_bleu
from emobench.metrics.rouge import rouge
from emobench.metrics.words import has_spaces, is_latin

VARIANTS = ("rouge1", "rouge2", "rougeL")
REFERENCES = ["the cats sat on the mats", "a man walked home", "numbers: 1, 2 and 3"]
GENERATED = ["the cat sat on a mat", "home walked a man", ""]
IDS = ["a", "b", "c"]
# Few words, so that they repeat; letters that rouge-score drops or lowers, and words that it stems.
TEXT = st.lists(st.sampled_from(["a", "b", "C", "running", "runs", "é", "...", "x-y"]), max_size=25).map(" ".join)


@pytest.mark.parametrize("stemming", [False, True])
def test_scores_equal_rouge_score(stemming: bool) -> None:
    found = rouge([GENERATED], REFERENCES, IDS, stemming=stemming)
    scorer = RougeScorer(list(VARIANTS), use_stemmer=stemming)
    direct = [scorer.score(r, g) for r, g in zip(REFERENCES, GENERATED, strict=True)]
    for variant in VARIANTS:
        values = [d[variant].fmeasure for d in direct]
        assert found[variant].examples == {key: (v, 1.0) for key, v in zip(IDS, values, strict=True)}
        assert found[variant].value == pytest.approx(np.mean(values))
        assert (found[variant].n, found[variant].unit, found[variant].higher_is_better) == (3, "fraction", True)


@given(reference=TEXT, text=TEXT, stemming=st.booleans())
def test_any_text_gets_rouge_scores_own_number(reference: str, text: str, stemming: bool) -> None:
    found = rouge([[text]], [reference], ["a"], stemming=stemming)
    direct = RougeScorer(list(VARIANTS), use_stemmer=stemming).score(reference, text)
    assert {v: found[v].value for v in VARIANTS} == {v: direct[v].fmeasure for v in VARIANTS}


def test_values_by_hand_and_stemming_is_off() -> None:
    # "the", "sat", "on" of 6 words each: 1/2; one bigram, "sat on", of 5; reversed words share a subsequence of 2 of 4.
    found = rouge([GENERATED[:2]], REFERENCES[:2], IDS[:2])
    assert {v: s.examples["a"][0] for v, s in found.items() if s.examples} == pytest.approx(
        {"rouge1": 3 / 6, "rouge2": 1 / 5, "rougeL": 3 / 6}
    )
    assert found["rougeL"].examples is not None
    assert found["rougeL"].examples["b"][0] == pytest.approx(2 / 4)
    assert rouge([["cat"]], ["cats"], ["a"], variants=["rouge1"])["rouge1"].value == 0
    assert rouge([["cat"]], ["cats"], ["a"], variants=["rouge1"], stemming=True)["rouge1"].value == 1


def test_samples_of_one_prompt_are_averaged_and_runs_are_kept() -> None:
    found = rouge([["a b", "x"], ["a c", "y"]], ["a b", "y"], ["p", "q"], variants=["rouge1"])["rouge1"]
    assert found.examples == {"p": (0.75, 2.0), "q": (0.5, 2.0)}
    assert found.value == pytest.approx(0.625)
    assert found.repeats == ((0.5,), (0.75,))
    assert found.n == 2


def test_no_text_is_a_metric_error() -> None:
    with pytest.raises(MetricError, match="no generated text"):
        rouge([], [], [])


# Texts that a metric of words cannot read have no score, rather than 0.

LATIN = {
    "english": "The cat sat on the mat, 3 times.",
    "french": "Où êtes-vous allés cet été, à la forêt ?",
    "german": "Die Übergröße der Füße fällt äußerst auf.",
    "czech": "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "turkish": "İstanbul'da güneşli bir gün, çok güzel.",
    "decomposed": "Ou\u0300 e\u0302tes-vous alle\u0301s cet e\u0301te\u0301 ?",
    "with emoji": "so happy \N{GRINNING FACE}\N{GRINNING FACE}\N{GRINNING FACE}\N{GRINNING FACE}\N{GRINNING FACE}",
    "accents alone": "é à ü",
    "punctuation": "... !!! ---",
    "empty": "",
}
SPACED = {
    "russian": "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "arabic": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "hebrew": "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "emoji": "\N{GRINNING FACE} \N{CAT FACE}",
}
UNSPACED = {
    "chinese": "人人生而自由在尊严和权利上一律平等他们赋有理性和良心。",
    "japanese": "すべての人間は生まれながらにして自由でありかつ尊厳と権利とについて平等である。",
    "katakana": "コンピューターサイエンス",
    "halfwidth": "\uff7a\uff9d\uff8b\uff9f\uff6d\uff70\uff80",
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "lao": "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ",
    "khmer": "មនុស្សទាំងអស់កើតមកមានសេរីភាព",
    "burmese": "လူတိုင်းသည်တူညီလွတ်လပ်သော",
    "tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས",
    "with a name": "人人生而自由在尊严和权利上一律平等 UNESCO 1948",
}


@pytest.mark.parametrize("text", LATIN.values(), ids=LATIN)
def test_latin_texts_have_rouge_scores_own_numbers(text: str) -> None:
    assert is_latin(text)
    other = text[: len(text) // 2]
    found = rouge([[other]], [text], ["a"])
    direct = RougeScorer(list(found)).score(text, other)
    assert {name: score.value for name, score in found.items()} == {n: d.fmeasure for n, d in direct.items()}


@pytest.mark.parametrize("text", [*SPACED.values(), *UNSPACED.values()], ids=[*SPACED, *UNSPACED])
def test_rouge_of_other_scripts_is_missing_with_the_reason(text: str) -> None:
    assert not is_latin(text)
    with pytest.raises(MetricError, match=r"cannot read 1 of 1 references: .*a to z"):
        rouge([[text]], [text], ["a"])


def test_most_letters_are_more_than_half() -> None:
    assert is_latin("ab\u4eba\u4eba")
    assert not is_latin("a\u4eba\u4eba")
    assert has_spaces(["ab \u4eba\u4eba"])
    assert not has_spaces(["a", "\u4eba\u4eba"])


def test_single_references_are_left_out_of_rouge() -> None:
    references = ["the cat sat", UNSPACED["chinese"], "a dog ran", SPACED["russian"]]
    runs = [["the cat", UNSPACED["chinese"], "x", "x"], ["sat", "x", "a dog", SPACED["russian"]]]
    found = rouge(runs, references, ["p", "q", "r", "s"], variants=["rouge1"])["rouge1"]
    scorer = RougeScorer(["rouge1"])
    read = {"p": 0, "r": 2}
    values = {k: [scorer.score(references[i], run[i])["rouge1"].fmeasure for run in runs] for k, i in read.items()}
    assert found.examples == {key: (pytest.approx(np.mean(of)), 2.0) for key, of in values.items()}
    assert (found.value, found.n) == (pytest.approx(np.mean(list(values.values()))), 2)
    with pytest.raises(MetricError, match="3 of 4 references"):
        rouge([["x"] * 4], [references[0], *UNSPACED.values()][:4], list("pqrs"))


@pytest.mark.parametrize("text", UNSPACED.values(), ids=UNSPACED)
def test_words_of_scripts_without_spaces_are_not_counted(text: str) -> None:
    texts = [f"{text} {text} {text} {text}", text]
    for metric in (lambda: distinct([texts]), lambda: self_bleu([texts]), lambda: repetition([texts], ["a", "b"])):
        with pytest.raises(MetricError, match="without spaces between words"):
            metric()


@pytest.mark.parametrize("text", [*LATIN.values(), *SPACED.values()], ids=[*LATIN, *SPACED])
def test_words_of_other_scripts_are_counted(text: str) -> None:
    assert has_spaces([text])
    texts = [f"{text} {text} one two three four", "five"]
    words = [re.findall(r"\S+", one) for one in texts]
    assert distinct([texts])["distinct_1"].value == len({w for of in words for w in of}) / sum(map(len, words))
    assert self_bleu([texts]).n == 2
    pairs = list(zip(words[0], words[0][1:], strict=False))
    assert repetition([texts], ["a", "b"])["rep_2"].value == pytest.approx(1 - len(set(pairs)) / len(pairs))


def test_a_single_continuation_without_spaces_has_no_repetition() -> None:
    run = ["a b a b a b", f"{UNSPACED['thai']} x x x x x", "and nine more words of a long third text " * 4]
    examples = repetition([run], ["p", "q", "r"])["rep_2"].examples or {}
    assert examples.keys() == {"p", "r"}
