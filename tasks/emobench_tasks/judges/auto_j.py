"""Auto-J (Li et al., ICLR 2024): critiques by a LLaMA-2-13B-chat that was trained to judge.

Prompts, parsers and options are those of GAIR-NLP/auto-j, codes/usage/constants_prompt.py and example.py. A chat
message of LLaMA 2 is the "[INST] ... [/INST]" that its code writes. Its code takes the name that follows the last
"final decision is ", whatever comes after it; here a decision that names several, or that is taken back, is none.
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
RATING = re.compile(r"rating[\W_]{0,8}\[\[([^\[\]]*)\]\]", re.IGNORECASE)
VALUES = {"1": 1.0, "2": 0.0, None: 0.5}
DECISION = re.compile(r"[\W_]*(?:response\s+([12])|(?:a\s+)?tied?)\b(?!-\w)")
MARKS, OTHER = r"[ \t*_'\"]*", r"(?:(?:response\s+)?[12]\b|(?:tied?|draw)\b)"
"""Spaces, quotes and Markdown, within a line; and another name."""
LINK = r"(?:[ \t*_'\",/|&=]|\b(?:and|or|vs|versus|a)\b\.?)+"
LIST = re.compile(rf"{LINK}{OTHER}|{MARKS}(?:,{MARKS})?or\b")
"""Several names after the decision, "Response 1 / Response 2 / Tie" or "Response 1 and Response 2 are equal"."""
PLURAL = r"(?:are|were|have|do|both|tied?|equal|equally|perform|and|or)"
AFTER_RESPONSE = re.compile(
    rf"{MARKS}(?:,{MARKS})?and{MARKS}(?:response\s+)?[12]{MARKS}[a-z]+s\b"
    rf"|{MARKS},{MARKS}(?:response\s+)?[12]{MARKS}(?!{PLURAL}\b)[a-z]"
)
"""Not a list, but a sentence about the other response: "Response 1, Response 2 misses it"."""
AFTER_TIE = re.compile(rf"{MARKS},(?:{LINK}{OTHER})+{MARKS}[a-z]")
"""Not a list, but a sentence about the responses: "Tie, Response 1 and Response 2 are equal"."""
CONTRARY = re.compile(
    rf"{MARKS}(?:ties|loses|lost|does not|did not|(?:is|was)\s+(?:\w+ly\s+)?"
    r"(?:not|no|inferior|tied|equal|equivalent|identical|comparable|as|on par|(?:the )?(?:same|worse|weaker)))\b"
)
"""What takes a decision back: "Response 1 is worse than Response 2"."""


class AutoJ(emobench.PairJudge):
    """Compares two responses in words, and ends with "the final decision is ..."."""

    name = "auto-j"
    model = MODEL
    examples: ClassVar = {
        f"Both are short.\nSo, the final decision is {words}.": value
        for words, value in (("Response 1", 1.0), ("Response 2", 0.0), ("Tie", 0.5))
    }

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        query = f"{pair.instruction}\n{pair.input}" if pair.input else pair.instruction
        text = PAIR.format(query=query, first=pair.first, second=pair.second)
        return emobench.JudgeRequest(({"role": "user", "content": text},), OPTIONS)

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        _, found, rest = reply.text.lower().rpartition("final decision is")
        decision = DECISION.match(rest) if found else None
        if decision is None:
            return None
        after = rest[decision.end() :]
        sentence = AFTER_RESPONSE if decision[1] else AFTER_TIE
        several = LIST.match(after) and not sentence.match(after)
        return None if several or CONTRARY.match(after) else VALUES[decision[1]]


class AutoJSingle(emobench.GradeJudge):
    """Writes a critique of a response, and rates it from 1 to 10."""

    name = "auto-j-single"
    model = MODEL
    examples: ClassVar = {"It is short.\nRating: [[5]]": 5.0, "Rating: [[9.5]]": 9.5}

    def request(self, instruction: str, response: str) -> emobench.JudgeRequest:
        text = SINGLE.format(query=instruction, response=response)
        return emobench.JudgeRequest(({"role": "user", "content": text},), OPTIONS)

    def grade(self, reply: emobench.JudgeReply) -> float | None:
        ratings = RATING.findall(reply.text)
        try:
            return self.on_scale(float(ratings[-1])) if ratings else None
        except ValueError:
            return None


@emobench.hookimpl
def emobench_judges() -> list[type[emobench.Judge]]:
    return [AutoJ, AutoJSingle]
