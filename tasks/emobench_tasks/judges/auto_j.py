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
MARKS = r"[ \t*_'\"]*"
"""Spaces, quotes and Markdown, within a line."""
OTHER = r"(?:(?:response\s+)?[12]\b|(?:tied?|draw)\b)"
LINK = r"(?:[ \t*_'\",/|&=]|\b(?:and|or|vs|versus|a)\b\.?)+"
DECISION = re.compile(
    rf"""
    [\W_]* (?: response\s+(?P<winner>[12]) | (?:a\s+)?tied? ) \b (?!-\w)

    # Not taken back: "Response 1 is worse than Response 2".
    (?! {MARKS} (?: ties | loses | lost | does\ not | did\ not | (?:is|was)\s+(?:\w+ly\s+)? (?: not | no | inferior
        | tied | equal | equivalent | identical | comparable | as | on\ par | (?:the\ )?(?:same|worse|weaker) )) \b )

    # Not one of several names: "Response 1 / Response 2 / Tie", "Response 1 and Response 2 are equal".
    (?: (?! {LINK} {OTHER} | {MARKS} (?:,{MARKS})? or\b )
    | (?(winner)
        # But a sentence about the other response: "Response 1 and Response 2 misses it", "Response 1, Response 2 ...".
        (?= {MARKS} (?:,{MARKS})? and {MARKS} (?:response\s+)?[12] {MARKS} [a-z]+s\b
        | {MARKS} , {MARKS} (?:response\s+)?[12] {MARKS}
          (?! (?:are|were|have|do|both|tied?|equal|equally|perform|and|or)\b ) [a-z] )
      | # Or about both: "Tie, Response 1 and Response 2 are equal".
        (?= {MARKS} , (?:{LINK}{OTHER})+ {MARKS} [a-z] )
    ))
    """,
    re.VERBOSE,
)
"""The name after "the final decision is", as far as it is the only one."""


class AutoJ(emobench.PairJudge):
    """Compares two responses in words, and ends with "the final decision is ..."."""

    name = "auto-j"
    model = MODEL
    examples: ClassVar = {
        f"Both are short.\nSo, the final decision is {words}.": value
        for words, value in (("Response 1", 1.0), ("Response 2", 0.0), ("Tie", 0.5))
    }

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        text = PAIR.format(query=pair.asked("\n"), first=pair.first, second=pair.second)
        return emobench.JudgeRequest(({"role": "user", "content": text},), OPTIONS)

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        _, announced, rest = reply.text.lower().rpartition("final decision is")
        decision = DECISION.match(rest) if announced else None
        return VALUES[decision["winner"]] if decision else None


class AutoJSingle(emobench.GradeJudge):
    """Writes a critique of a response, and rates it from 1 to 10."""

    name = "auto-j-single"
    model = MODEL
    examples: ClassVar = {"It is short.\nRating: [[5]]": 5.0, "Rating: [[9.5]]": 9.5}

    def request(self, instruction: str, response: str) -> emobench.JudgeRequest:
        text = SINGLE.format(query=instruction, response=response)
        return emobench.JudgeRequest(({"role": "user", "content": text},), OPTIONS)

    def grade(self, reply: emobench.JudgeReply) -> float | None:
        try:
            return self.on_scale(float(RATING.findall(reply.text)[-1]))
        except (IndexError, ValueError):
            return None


@emobench.hookimpl
def emobench_judges() -> list[type[emobench.Judge]]:
    return [AutoJ, AutoJSingle]
