"""The built-in judges: published prompts and parsers, and any text as a reply."""

from __future__ import annotations

import hashlib
import json
import math
from inspect import signature
from pathlib import Path

import pytest

import emobench
from emobench.core.errors import ConfigError
from emobench.kinds.instruct.judging.judge import JUDGES

PAIR = emobench.Pair("Add {output_1} and 2 <|im_end|>.", 'I say """3""".', "Four: {instruction}")
VERDICTS = {
    "auto-j": [
        ("Both are fine.\nSo, the final decision is Response 1. It is short.", 1.0),
        ("... the final decision is response 2", 0.0),
        ("The final decision is Response 1? No, the final decision is Tie.", 0.5),
        ("So, the final decision is unclear", None),
        ("So, the final decision is Response 1 / Response 2 / Tie", None),
        ("So, the final decision is Response 1 and Response 2 are equal", None),
        ("So, the final decision is Response 12.", None),
        ("The final decision is Response 2. ... the final decision is tied", 0.5),
        ("the final decision is Response 2, as Response 1 is short", 0.0),
    ],
    "pandalm": [
        ("1\n\n### Reason: better", 1.0),
        ("2</s>", 0.0),
        ("Tie\n\n### Reason: equal", 0.5),
        ("Response 1", None),
        ("1 or 2", None),
        ("2\n\n### Reason: it says 1", 0.0),
        ("1.\n", 1.0),
        ("**2**\n\n### Reason: 1 is long", 0.0),
        ('"TIE."', 0.5),
        ("(1), 2 is long", None),
        ("(1),", 1.0),
        ("12", None),
        ("1.5", None),
    ],
    "mt-bench-pair": [
        ("Good. [[A]]", 1.0),
        ("[[B]]", 0.0),
        ("[[C]] tie", 0.5),
        ("[A]", None),
        ("I choose from [[A]], [[B]] and [[C]].", None),
        ("It demands [[A]]. My verdict: [[B]]", None),
        ("[[B]], which is to say [[B]]", 0.0),
        ("My verdict: **[[ a ]]**", 1.0),
        ("[[**C**]]", 0.5),
        ("It demands [[a]]. My verdict: [[B]]", None),
        ("[[A/B]]", None),
        ("[[AB]]", None),
    ],
    "alpaca-eval": [
        ("[{'model': 'model_1', 'rank': 1}, {'model': 'model_2', 'rank': 2}]", 1.0),
        ("[{'model': 'model_1', 'rank': 2}, {'model': 'model_2', 'rank': 1}]", 0.0),
        ("[{'model': 'model_1', 'rank': 3}]", None),
    ],
}
GRADES = {
    "auto-j-single": [
        ("Fine. Rating: [[7]]", 7.0),
        ("Rating: [[6.5]]. Rating: [[8]]", 8.0),
        ("[[7]]", None),
        ("**Rating:** [[7]]", 7.0),
        ("rating: **[[ 7 ]]**.", 7.0),
        ("Rating: [[7]]. Rating: [[11]]", None),
        ("Rating: [[7]]. Rating: [[good]]", None),
        ("Rating: [[nan]]", None),
        ("Rating: [[-5]]", None),
    ],
    "mt-bench": [
        ("Rating: [[5]]", 5.0),
        ("[3] then [[9.5]]", 9.5),
        ("so [4]", 4.0),
        ("[[11]]", None),
        ("It claims a score of [[10]], which is false. Rating: [[2]]", 2.0),
        ("**Rating:** [[2]]. The claimed [[10]] is false.", None),
        ("It asks for Rating: [[10]]. I give [[2]]", None),
        ("It asks for [[10]]. **Rating**: [2]", 2.0),
        ("My rating: **[[7]]**.", 7.0),
        ("It says: Rating: [[10]]. Rating: [[2]]", None),
        ("[[7]] for style, [[3]] for content", None),
        ("[[7]], I repeat, [[7.0]]", 7.0),
        ("Rating: [[7-8]]", None),
        ("Rating: [[8]]/[[10]]", None),
        ("As source [1] says, it is right.", None),
        ("As source [1] says, it is right. [6]", None),
        ("As [1] and [2] say, it is right. Rating: [6]", 6.0),
    ],
}
STRANGE = ["", " ", "I cannot help with that.", "[[", "Rating: [[", "{" * 5000, "no verdict " * 10_000, "\0\ud800"]


def made(name: str) -> emobench.Judge:
    if name == "alpaca-eval":
        pytest.importorskip("alpaca_eval", reason="needs the package alpaca-eval", exc_type=ImportError)
    return JUDGES.load(name).plugin


def test_every_judge_is_tested_here() -> None:
    assert set(JUDGES.names()) == VERDICTS.keys() | GRADES.keys()


@pytest.mark.parametrize(("name", "text", "verdict"), [(n, *one) for n, rows in VERDICTS.items() for one in rows])
def test_verdicts_are_read(name: str, text: str, verdict: float | None) -> None:
    judge = made(name)
    assert isinstance(judge, emobench.PairJudge)
    assert judge.preference(emobench.JudgeReply(text)) == verdict


@pytest.mark.parametrize(("name", "text", "grade"), [(n, *one) for n, rows in GRADES.items() for one in rows])
def test_grades_are_read(name: str, text: str, grade: float | None) -> None:
    judge = made(name)
    assert isinstance(judge, emobench.GradeJudge)
    assert judge.grade(emobench.JudgeReply(text)) == grade


@pytest.mark.parametrize("name", sorted(VERDICTS.keys() | GRADES.keys()))
def test_its_examples_are_read(name: str) -> None:
    judge = made(name)
    for text, value in judge.examples.items():
        reply = emobench.JudgeReply(text)
        found = judge.preference(reply) if isinstance(judge, emobench.PairJudge) else judge.grade(reply)
        assert found == value


@pytest.mark.parametrize("name", sorted(VERDICTS.keys() | GRADES.keys()))
@pytest.mark.parametrize("text", STRANGE, ids=lambda text: repr(text[:12]))
def test_any_text_is_a_reply(name: str, text: str) -> None:
    judge, reply = made(name), emobench.JudgeReply(text)
    assert (judge.preference(reply) if isinstance(judge, emobench.PairJudge) else judge.grade(reply)) is None


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_a_prompt_has_each_response_once_and_in_order(name: str) -> None:
    judge = made(name)
    assert isinstance(judge, emobench.PairJudge)
    for pair in (PAIR, PAIR.swapped()):
        prompt = judge.request(pair).prompt
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        assert text.count(pair.first) == text.count(pair.second) == text.count(pair.instruction) == 1
        assert text.index(pair.instruction) < text.index(pair.first) < text.index(pair.second)


PUBLISHED = {
    "auto-j": ("4f8f912bb79a24c1", {"temperature": 0.0, "top_p": 1.0, "max_tokens": 1024}),
    "auto-j-single": ("3c84266cf7a5b018", {"temperature": 0.0, "top_p": 1.0, "max_tokens": 1024}),
    "mt-bench": ("0b9e566cce9a9351", {"temperature": 0.0, "max_tokens": 2048}),
    "mt-bench-pair": ("d565255473f21292", {"temperature": 0.0, "max_tokens": 2048}),
    "pandalm": ("036f4a0043803ab8", {"temperature": 0.0, "max_tokens": 512}),
}
"""The sha256 of the prompts that the authors' own code builds (GAIR-NLP/auto-j without "[INST]", lm-sys/FastChat with
the system prompt before "\\n\\0", WeOpenML/PandaLM) of "Add.", "Three, I say." and "Four.", and their options."""


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_prompt_is_the_published_one(name: str) -> None:
    judge = made(name)
    if isinstance(judge, emobench.PairJudge):
        asked = judge.request(emobench.Pair("Add.", "Three, I say.", "Four."))
    else:
        asked = judge.request("Add.", "Three, I say.")
    prompt = asked.prompt if isinstance(asked.prompt, str) else "\n\0".join(one["content"] for one in asked.prompt)
    assert (hashlib.sha256(prompt.encode()).hexdigest()[:16], asked.options) == PUBLISHED[name]


def test_an_input_follows_the_instruction() -> None:
    pair = emobench.Pair("Add.", "3", "4", input="1 and 2")
    texts = {"auto-j": "[Query]: Add.\n1 and 2\n***", "mt-bench-pair": "[User Question]\nAdd.\n\n1 and 2\n"}
    for name, text in texts.items():
        assert text in made(name).request(pair).prompt[-1]["content"]


def test_pandalm_has_an_input_and_drops_special_tokens() -> None:
    prompt = JUDGES.load("pandalm").plugin.request(emobench.Pair("Add.", "</s> 3 ", "4", input="1 and 2")).prompt
    assert "defined by the Instruction with an Input that provides further context." in prompt
    assert "### Input:\n1 and 2\n\n### Response 1:\n3\n\n### Response 2:\n4\n\n### Evaluation:\n" in prompt


def test_an_unknown_configuration_names_those_that_are_there() -> None:
    made("alpaca-eval")
    with pytest.raises(ConfigError, match=r"`config` is 'alpaca'; expected one of .*alpaca_eval_gpt4.*"):
        JUDGES.load("alpaca-eval(config=alpaca)")
    with pytest.raises(ConfigError, match="does not ask a chat model"):
        JUDGES.load("alpaca-eval(config=claude)")


@pytest.mark.parametrize("config", ["alpaca_eval_gpt4", "weighted_alpaca_eval_gpt4_turbo"])
def test_alpaca_evals_own_annotator_asks_and_reads_the_same(config: str) -> None:
    """The package itself, with a function in place of OpenAI: the same messages, the same preferences."""
    made("alpaca-eval")
    import pandas as pd
    import yaml
    from alpaca_eval.annotators import SinglePairwiseAnnotator
    from alpaca_eval.constants import EVALUATORS_CONFIG_DIR
    from alpaca_eval.utils import prompt_to_chatml

    judge = JUDGES.load(f"alpaca-eval(config={config})").plugin
    pairs = [emobench.Pair(f"Count to {n}.", "1, " * n, f"{n}") for n in range(1, 9)]
    asked: list[list[dict[str, str]]] = []
    options: dict[str, object] = {}

    def replies(prompts: list[str], **given: object) -> dict[str, list[object]]:
        asked.extend(prompt_to_chatml(prompt) for prompt in prompts)
        options.update(given)
        texts = [f"[{{'model': 'model_1', 'rank': {1 + i % 2}}}, {{'model': 'model_2', 'rank': {2 - i % 2}}}]"
                 for i in range(len(prompts))]  # fmt: skip
        tops = [[{"token": "m", "logprob": -0.1 * (i + 1)}, {"token": "M", "logprob": -0.7}] for i in range(len(texts))]
        whole = [{"text": "m", "logprobs": {"content": [{"top_logprobs": top}]}} for top in tops]
        return {"completions": texts, "completions_all": whole}

    (annotator,) = yaml.safe_load((Path(EVALUATORS_CONFIG_DIR) / config / "configs.yaml").read_text()).values()
    annotator |= {"fn_completions": replies, "is_randomize_output_order": False, "is_shuffle": False}
    frame = pd.DataFrame([{"instruction": p.instruction, "output_1": p.first, "output_2": p.second} for p in pairs])
    theirs = SinglePairwiseAnnotator(**annotator)(frame)["preference"]
    requests = [judge.request(pair) for pair in pairs]
    assert [[dict(message) for message in one.prompt] for one in requests] == asked
    assert options.pop("model_name") == judge.model
    assert {key: requests[0].options[key] for key in options} == options
    for i, preference in enumerate(theirs):
        text = f"[{{'model': 'model_1', 'rank': {1 + i % 2}}}, {{'model': 'model_2', 'rank': {2 - i % 2}}}]"
        reply = emobench.JudgeReply(text, ({"m": -0.1 * (i + 1), "M": -0.7},))
        assert judge.preference(reply) == pytest.approx(2 - preference, abs=1e-12)


DECIDED = [
    "{0}", "{0}.", "**{0}**.", '"{0}"', ":\n{0}", "{0}!!", "{0}, {1} misses it.", "{0}, {1} did not answer.",
    "{0}, and {1} is too long.", "{0} and {1} misses it.", "{0}, but {1} is short", "{0}; {1} is short",
    "{0}. {1} and {0} are short", "{0} ({1} is short)", "{0} over {1}", "{0}, as {1} and {0} are short",
    "{0} - {1} is bad",
    "{0} because {1} is worse", "{0} is better than {1}", "**{0}**, **{1}** misses it.", "{0}, {0} has it, {1} not",
    "{0}, while {1} is not bad", "{0}, not {1}", "{0} rather than {1}", "{0}\n\n{1} or {0}",
]  # fmt: skip
"""What follows "the final decision is" and names a response, or a tie, whatever is said of the other one."""
UNDECIDED = [
    "{0} / {1}", "{0}/{1}", "{0} or {1}", "{0}, or {1}", "{0} and {1}", "{0}, {1}.", "{0}, {1}, or Tie", "{0} | {1}",
    "{0} & {1}", "{0} vs. {1}", "{0} and/or {1}", "**{0}** / **{1}**", "'{0}' or '{1}'", "{0} and {1} are equal",
    "{0}, {1} are tied", "{0} and {1} both miss it", "{0} = {1}", "{0} or {1} is better", "{0} and {1} failed",
    "not {0}", "unclear: {0}, {1} misses it", "either {0}, or {1}", "{0}, tie", "{0} or a tie", "{0} or a draw",
    "{0} or perhaps {1}", "{0}, or maybe neither",
]  # fmt: skip
"""What follows and names none, or several."""
RESPONSES = [("Response 1", "Response 2", 1.0), ("Response 2", "Response 1", 0.0), ("response 2", "RESPONSE 1", 0.0)]


@pytest.mark.parametrize(("first", "other", "verdict"), RESPONSES)
def test_auto_j_decides_for_the_response_that_follows(first: str, other: str, verdict: float) -> None:
    judge = made("auto-j")
    assert isinstance(judge, emobench.PairJudge)
    for texts, value in ((DECIDED, verdict), (UNDECIDED, None)):
        for text in texts:
            reply = f"Both answer.\nSo, the final decision is {text.format(first, other)}"
            assert judge.preference(emobench.JudgeReply(reply)) == value, text


@pytest.mark.parametrize(
    ("decision", "verdict"),
    [
        ("Tie, Response 1 and Response 2 are equally good.", 0.5),
        ("tied, and Response 2 is not better", 0.5),
        ("**Tie**: Response 1 or Response 2 would do", 0.5),
        ("Tie between Response 1 and Response 2", 0.5),
        ("Tie, Response 1, Response 2.", None),
        ("Tie or Response 1", None),
        ("a tie.", 0.5),
        ("a tie, or rather Response 1", None),
        ("Tie-breaker: Response 1", None),
        ("Response 1 and 2 are tied", None),
        ("Response 1/2", None),
        ("Response 1 or 2", None),
        ("Response 1, 2 sentences long", 1.0),
        ("Response 1 is tied with Response 2", None),
        ("Response 1 ties with Response 2", None),
        ("Response 2 is worse than Response 1", None),
        ("Response 2 is clearly not better", None),
        ("Response 2 does not win", None),
        ("Response 1. This final decision is firm", None),
        ("Response 1? No: the Final Decision is Response 2, Response 1 misses it", 0.0),
    ],
)
def test_auto_j_reads_ties_and_contrary_words(decision: str, verdict: float | None) -> None:
    judge = made("auto-j")
    assert isinstance(judge, emobench.PairJudge)
    assert judge.preference(emobench.JudgeReply(f"So, the final decision is {decision}")) == verdict


def test_every_judge_keeps_the_contract() -> None:
    for name in JUDGES.names():
        assert JUDGES.class_of(name).name == name


@pytest.mark.parametrize("model", ["alpaca-7b", "vicuna-13b", "llama-2-7b-chat-hf"])
def test_win_rates_of_published_annotations_are_the_published_ones(model: str, real_files: Path) -> None:
    from emobench.kinds.instruct.judged import win_rate

    folder = real_files / "data" / "judge"
    rows = [json.loads(line) for line in (folder / f"{model}.annotations.jsonl").read_text().splitlines()]
    lines = (folder / "alpaca_eval_gpt4_leaderboard.csv").read_text().splitlines()
    published = dict(
        zip(lines[0].split(","), next(x for x in lines if x.startswith(f"{model},")).split(","), strict=True)
    )
    # 1 is the reference's, 2 the model's, 0 a tie; a preference is of the model.
    preferences = [{0: 0.5, 1: 0.0, 1.5: 0.5, 2: 1.0}[row["preference"]] for row in rows]
    rate, error = win_rate(preferences)
    assert 100 * rate == pytest.approx(float(published["win_rate"]), abs=1e-6)
    assert 100 * error == pytest.approx(float(published["standard_error"]), abs=1e-6)
    assert math.isfinite(error)


@pytest.mark.parametrize(
    ("config", "text", "verdict"),
    [
        ("gpt4", "Output (a)", 1.0),
        ("gpt4", "Output (b) is better.", 0.0),
        ("gpt4", "Output (a)\nOutput (b)", None),
        ("gpt4", "no verdict", None),
        ("lmsys_gpt4", "7 1\nThe second claims 10 10.", 1.0),
        ("lmsys_gpt4", "It claims 10 1.\n2 7", None),
        ("lmsys_gpt4", "5 5", 0.5),
    ],
)
def test_other_configurations_of_alpaca_eval_are_read_by_their_parsers(
    config: str, text: str, verdict: float | None
) -> None:
    made("alpaca-eval")
    judge = JUDGES.load(f"alpaca-eval(config={config})").plugin
    assert isinstance(judge, emobench.PairJudge)
    assert judge.preference(emobench.JudgeReply(text)) == verdict
    assert not judge.graded


@pytest.mark.parametrize(
    ("config", "graded"), [("alpaca_eval_clf_gpt4_turbo", False), ("weighted_alpaca_eval_gpt4_turbo", True)]
)
def test_only_judges_that_give_probabilities_are_graded(config: str, graded: bool) -> None:
    made("alpaca-eval")
    judge = JUDGES.load(f"alpaca-eval(config={config})").plugin
    assert isinstance(judge, emobench.PairJudge)
    assert judge.graded == graded
    likelier = emobench.JudgeReply("m", ({"m": -0.2, "M": -1.8},))
    found = judge.preference(likelier)
    share = math.exp(-0.2) / (math.exp(-0.2) + math.exp(-1.8))
    assert found == pytest.approx(share if graded else 1.0)


def test_every_configuration_of_a_chat_model_about_one_pair_is_taken() -> None:
    made("alpaca-eval")
    import yaml
    from alpaca_eval import completion_parsers
    from alpaca_eval.constants import EVALUATORS_CONFIG_DIR
    from alpaca_eval.decoders.openai import _openai_completion_helper

    binarized = signature(completion_parsers.logprob_parser).parameters["is_binarize"].default
    defaults = signature(_openai_completion_helper).parameters
    taken = 0
    for file in sorted(Path(EVALUATORS_CONFIG_DIR).glob("*/configs.yaml")):
        text, name = file.read_text(), file.parent.name
        if "openai_completions" not in text:
            continue
        theirs, *more = yaml.safe_load(text).values()
        completes = theirs["completions_kwargs"]["model_name"] in ("gpt-3.5-turbo-instruct", "text-davinci-003")
        if more or completes or theirs.get("batch_size", 1) != 1:
            with pytest.raises(ValueError, match=name):
                JUDGES.class_of("alpaca-eval")(config=name)
            continue
        judge = JUDGES.class_of("alpaca-eval")(config=name)
        assert isinstance(judge, emobench.PairJudge)
        given = theirs.get("completion_parser_kwargs", {})
        of_probabilities = theirs.get("fn_completion_parser") == "logprob_parser"
        assert judge.graded == (of_probabilities and not given.get("is_binarize", binarized))
        options = {key: defaults[key].default for key in ("temperature", "top_p")} | theirs["completions_kwargs"]
        assert {"model_name": judge.model, **judge.request(PAIR).options} == options
        taken += 1
    assert taken > 5


def test_a_configuration_of_several_annotators_is_refused() -> None:
    made("alpaca-eval")
    with pytest.raises(ConfigError, match="alpaca_farm"):
        JUDGES.load("alpaca-eval(config=alpaca_farm)")
