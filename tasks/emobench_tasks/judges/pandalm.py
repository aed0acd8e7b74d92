"""PandaLM (Wang et al., ICLR 2024): verdicts by a LLaMA-7B that was trained to judge.

Prompt, parser and options are those of WeOpenML/PandaLM, pandalm/utils/pandalm_inference.py. Its code searches with 4
beams, which endpoints do not offer: through one the likeliest token is taken.
"""

from __future__ import annotations

import re
from typing import ClassVar

import emobench

SPECIAL = re.compile(
    r"<unk>|<pad>|<s>|</s>|\[PAD\]|<\|endoftext\|>|\[UNK\]|\[CLS\]|\[MASK\]|<\|startofpiece\|>|<\|endofpiece\|>"
    r"|\[gMASK\]|\[sMASK\]"
)
TASK = "Below are two responses for a given task. The task is defined by the Instruction{context}. Evaluate the \
responses and generate a reference answer for the task.\n\n"
CONTEXT = " with an Input that provides further context"
VERDICTS = {"1": 1.0, "2": 0.0, "tie": 0.5}
MARKS = " \t\r*_'\"`.,:;!()"
"""Around a verdict: spaces, Markdown, quotes and punctuation."""


class PandaLM(emobench.PairJudge):
    """Answers "1", "2" or "Tie", then a reason and a reference answer.

    Its code takes any other first line for a tie; here it is a reply without a verdict.
    """

    name = "pandalm"
    model = "WeOpenML/PandaLM-7B-v1"
    examples: ClassVar = {f"{words}\n\n### Reason: It is short.": value for words, value in VERDICTS.items()}

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        task, given = TASK.format(context=""), ""
        if pair.input:
            task, given = TASK.format(context=CONTEXT), f"### Input:\n{pair.input}\n\n"
        first, second = _plain(pair.first), _plain(pair.second)
        text = (
            f"{task}### Instruction:\n{pair.instruction}\n\n{given}"
            f"### Response 1:\n{first}\n\n### Response 2:\n{second}\n\n### Evaluation:\n"
        )
        return emobench.JudgeRequest(text, {"temperature": 0.0, "max_tokens": 512})

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        first_line = _plain(reply.text).split("\n")[0]
        return VERDICTS.get(first_line.strip(MARKS).lower())


def _plain(text: str) -> str:
    return SPECIAL.sub("", text.strip()).strip()


@emobench.hookimpl
def emobench_judges() -> list[type[emobench.Judge]]:
    return [PandaLM]
