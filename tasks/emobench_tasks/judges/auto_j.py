"""Auto-J (Li et al., ICLR 2024): critiques by a LLaMA-2-13B-chat that was trained to judge.

Prompts, parsers and options are those of GAIR-NLP/auto-j, codes/usage/constants_prompt.py and example.py. A chat
message of LLaMA 2 is the "[INST] ... [/INST]" that its code writes.
"""

from __future__ import annotations

import re
from typing import ClassVar

import emobench

MODEL = "GAIR/autoj-13b"
OPTIONS = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 1024}
PAIR = """You are assessing two submitted responses on a given user's query and judging which response is better or \
they are tied. Here is the data:

[BEGIN DATA]
***
[Query]: {query}
***
[Response 1]: {first}
***
[Response 2]: {second}
***
[END DATA]

Here are the instructions to assess and compare the two responses:

1. Pinpoint the key factors to distinguish these two responses.
2. Conclude your comparison by providing a final decision on which response is better, or they are tied. Begin your \
final decision statement with "So, the final decision is Response 1 / Response 2 / Tie". Ensure that your decision \
aligns coherently with the comprehensive evaluation and comparison you've provided."""
SINGLE = """Write critiques for a submitted response on a given user's query, and grade the response:
\x20\x20
[BEGIN DATA]
***
[Query]: {query}
***
[Response]: {response}
***
[END DATA]

Write critiques for this response. After that, you should give a final rating for the response on a scale of 1 to 10 \
by strictly following this format: "[[rating]]", for example: "Rating: [[5]]"."""
DECISIONS = {"response 1": 1.0, "response 2": 0.0, "tie": 0.5}
DECISION = re.compile(r"(response 1|response 2|tie)d?\b(?!\s*(?:/|\||,|or|and|&|vs\.?)\s*(?:response|tie))")
"""A decision. "Response 1 / Response 2 / Tie" repeats the prompt, and "Response 1 and Response 2" is none."""


class AutoJ(emobench.PairJudge):
    """Compares two responses in words, and ends with "the final decision is ..."."""

    name = "auto-j"
    model = MODEL
    examples: ClassVar = {
        f"Both are short.\nSo, the final decision is {words.title()}.": value for words, value in DECISIONS.items()
    }

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        query = f"{pair.instruction}\n{pair.input}" if pair.input else pair.instruction
        text = PAIR.format(query=query, first=pair.first, second=pair.second)
        return emobench.JudgeRequest(({"role": "user", "content": text},), OPTIONS)

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        _, found, decision = reply.text.rpartition("final decision is ")
        match = DECISION.match(decision.strip().lower()) if found else None
        return None if match is None else DECISIONS[match[1]]


class AutoJSingle(emobench.GradeJudge):
    """Writes a critique of a response, and rates it from 1 to 10."""

    name = "auto-j-single"
    model = MODEL
    examples: ClassVar = {"It is short.\nRating: [[5]]": 5.0, "Rating: [[9.5]]": 9.5}

    def request(self, instruction: str, response: str) -> emobench.JudgeRequest:
        text = SINGLE.format(query=instruction, response=response)
        return emobench.JudgeRequest(({"role": "user", "content": text},), OPTIONS)

    def grade(self, reply: emobench.JudgeReply) -> float | None:
        _, found, rest = reply.text.rpartition("Rating: [[")
        number, closed, _ = rest.partition("]]")
        try:
            return self.on_scale(float(number)) if found and closed else None
        except ValueError:
            return None


@emobench.hookimpl
def emobench_judges() -> list[type[emobench.Judge]]:
    return [AutoJ, AutoJSingle]
