"""MT-bench's judges (Zheng et al., NeurIPS 2023), for one turn: a grade from 1 to 10, and a comparison.

Prompts and options are those of lm-sys/FastChat, fastchat/llm_judge: `single-v1` and `pair-v2` of
data/judge_prompts.jsonl, and common.py. So are the parsers, but for replies with several ratings or verdicts, of which
its code takes the first: a response may claim a rating, and a judge quote it. The last rating counts if it is the only
value, or the only one after the word "Rating"; a reply that contradicts itself has no verdict.
"""

from __future__ import annotations

import re
from typing import ClassVar

import emobench

MODEL = "gpt-4"
OPTIONS = {"temperature": 0.0, "max_tokens": 2048}
NUMBER = r"([0-9]+\.?[0-9]*)"
NAMED = re.compile(rf"rating[\W_]{{0,8}}\[{NUMBER}\]", re.IGNORECASE)
"""A rating after the word, in single or double brackets."""
DOUBLE, AT_END = re.compile(rf"\[\[{NUMBER}\]\]"), re.compile(rf"\[{NUMBER}\]\W*\Z")
"""Other ratings. Single brackets count at the end alone: elsewhere they are references, such as [1]."""
BRACKETED, UNBRACKETED = re.compile(rf"\[{NUMBER}\]"), re.compile(r"rating[\W_]{0,8}[0-9]", re.IGNORECASE)
"""Where there is more than one of the first, or one of the second, the brackets at the end are a reference, too."""
SINGLE = """[Instruction]
Please act as an impartial judge and evaluate the quality of the response provided by an AI assistant to the user \
question displayed below. Your evaluation should consider factors such as the helpfulness, relevance, accuracy, depth, \
creativity, and level of detail of the response. Begin your evaluation by providing a short explanation. Be as \
objective as possible. After providing your explanation, you must rate the response on a scale of 1 to 10 by strictly \
following this format: "[[rating]]", for example: "Rating: [[5]]".

[Question]
{question}

[The Start of Assistant's Answer]
{answer}
[The End of Assistant's Answer]"""
RULES = """Please act as an impartial judge and evaluate the quality of the responses provided by two AI assistants to \
the user question displayed below. You should choose the assistant that follows the user's instructions and answers \
the user's question better. Your evaluation should consider factors such as the helpfulness, relevance, accuracy, \
depth, creativity, and level of detail of their responses. Begin your evaluation by comparing the two responses and \
provide a short explanation. Avoid any position biases and ensure that the order in which the responses were \
presented does not influence your decision. Do not allow the length of the responses to influence your evaluation. Do \
not favor certain names of the assistants. Be as objective as possible. After providing your explanation, output your \
final verdict by strictly following this format: "[[A]]" if assistant A is better, "[[B]]" if assistant B is better, \
and "[[C]]" for a tie."""
PAIR = """[User Question]
{question}

[The Start of Assistant A's Answer]
{first}
[The End of Assistant A's Answer]

[The Start of Assistant B's Answer]
{second}
[The End of Assistant B's Answer]"""
VERDICT = re.compile(r"\[\[[\s*_]*([ABC])[\s*_]*\]\]")
VERDICTS = {"A": 1.0, "B": 0.0, "C": 0.5}


class MTBench(emobench.GradeJudge):
    """Rates a response from 1 to 10, after an explanation."""

    name = "mt-bench"
    model = MODEL
    examples: ClassVar = {"It is short. Rating: [[5]]": 5.0, "Rating: [9.5]": 9.5}

    def request(self, instruction: str, response: str) -> emobench.JudgeRequest:
        text = SINGLE.format(question=instruction, answer=response)
        messages = {"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": text}
        return emobench.JudgeRequest(messages, OPTIONS)

    def grade(self, reply: emobench.JudgeReply) -> float | None:
        text = reply.text
        named = {match.end(1): float(match[1]) for match in NAMED.finditer(text)}
        others = {match.end(1): float(match[1]) for match in DOUBLE.finditer(text) if match.end(1) not in named}
        if not named and not others:
            at_end = AT_END.search(text)
            if at_end is None or len(BRACKETED.findall(text)) > 1 or UNBRACKETED.search(text):
                return None
            return self.on_scale(float(at_end[1]))
        ratings = {**named, **others}
        last = max(ratings)
        rivals = ratings if last in others else named
        return self.on_scale(ratings[last]) if {*rivals.values()} == {ratings[last]} else None


class MTBenchPair(emobench.PairJudge):
    """Compares two responses, and ends with "[[A]]", "[[B]]" or "[[C]]"."""

    name = "mt-bench-pair"
    model = MODEL
    examples: ClassVar = {f"Both are short. [[{letter}]]": value for letter, value in VERDICTS.items()}

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        text = PAIR.format(question=pair.asked(), first=pair.first, second=pair.second)
        messages = {"role": "system", "content": RULES}, {"role": "user", "content": text}
        return emobench.JudgeRequest(messages, OPTIONS)

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        letters = set(VERDICT.findall(reply.text.upper()))
        return VERDICTS[letters.pop()] if len(letters) == 1 else None


@emobench.hookimpl
def emobench_judges() -> list[type[emobench.Judge]]:
    return [MTBench, MTBenchPair]
