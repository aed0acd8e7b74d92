"""The interface of judges: their requests about responses, and how replies are read.

A judge is a prompt and a parser. The model that answers, at an endpoint or on this machine, is a separate setting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from emobench.core.family import Family
from emobench.kinds.interface import Progress

MOST_TOKENS = 10**9


@dataclass(frozen=True)
class Pair:
    """Two responses to an instruction, in the order in which the judge sees them."""

    instruction: str
    first: str
    second: str
    input: str = ""
    """The input of the instruction, if the data set has it in a field of its own."""

    def asked(self, gap: str = "\n\n") -> str:
        """Return the instruction, followed by its input if it has one."""
        return f"{self.instruction}{gap}{self.input}" if self.input else self.instruction

    def swapped(self) -> Pair:
        return Pair(self.instruction, self.second, self.first, self.input)


@dataclass(frozen=True)
class JudgeRequest:
    """A request to the model of a judge: the messages of a chat, or a text that it continues."""

    prompt: str | tuple[Mapping[str, str], ...]
    """A text, or messages with `role` and `content`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the reply under the names of OpenAI's API: `max_tokens`, `temperature`, `top_logprobs`."""

    @property
    def text(self) -> str:
        """All that the model reads."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "".join(message["content"] for message in self.prompt)


@dataclass(frozen=True)
class JudgeReply:
    """The answer of a judge's model."""

    text: str
    top_logprobs: tuple[Mapping[str, float], ...] = ()
    """For each token of the reply, the likeliest ones with their log probabilities, if the request asks for them."""
    model: str = ""
    """The model, as the one who answered names it."""
    prompt_tokens: int = 0
    reply_tokens: int = 0

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> JudgeReply:
        """Return a reply of the fields that `asdict` gave."""
        reply = cls(**{**fields, "top_logprobs": tuple(fields["top_logprobs"])})
        read = token_count(reply.prompt_tokens)
        written = token_count(reply.reply_tokens)
        return replace(reply, prompt_tokens=read, reply_tokens=written)


def token_count(value: Any) -> int:
    """Return a number of tokens that a server reports; 0 for anything else, such as null: it decides no result."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


Requests = Mapping[str, JudgeRequest]
"""Requests by their digests."""
KeepReply = Callable[[str, JudgeReply], None]
"""Keeps the reply to the request with a digest."""


@dataclass
class Asked:
    """The outcome of requests."""

    replies: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """Requests that are refused (too long, filtered), with the reason."""
    failed: dict[str, str] = field(default_factory=dict)
    """Requests without a reply after all retries."""
    final: bool = False
    """Whether the refused requests would be refused whenever they are sent: by a model on this machine."""


class Answering(Protocol):
    """Who answers the requests of a judge: an endpoint, or a model on this machine."""

    @property
    def identity(self) -> str:
        """The model that answers, by content if known: another identity gets all requests again."""
        ...

    def check(self, request: JudgeRequest) -> None:
        """Raise ModelError for a request that it never answers."""
        ...

    def ask(
        self,
        requests: Requests,
        keep: KeepReply,
        progress: Progress,
    ) -> Asked:
        """Answer requests, and call `keep` with each reply at once, so that no paid reply is lost."""
        ...


class Judge(ABC):
    """Asks a language model about responses. A subclass is a dataclass if it has parameters."""

    name: ClassVar[str]
    model: ClassVar[str]
    """The model that its authors ask."""
    examples: ClassVar[Mapping[str, float]] = {}
    """Replies in the form that the prompt asks for, with their verdicts, for `emobench judges check`."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Whose prompts and parsers it uses: another version may judge otherwise."""


class PairJudge(Judge):
    """Compares two responses."""

    graded: ClassVar[bool] = False
    """Whether a preference may be any number from 0 to 1: the two orders are then averaged. Else they must agree."""

    @abstractmethod
    def request(self, pair: Pair) -> JudgeRequest:
        """Return the request about a pair. The same pair gives the same request."""

    @abstractmethod
    def preference(self, reply: JudgeReply) -> float | None:
        """Return the preference for the first response: 1, 0, or 0.5 for a tie; None if the reply has no verdict.

        Any text is read: an empty one, a refusal, and one of 100 kB.
        """


class GradeJudge(Judge):
    """Gives a response a grade."""

    scale: ClassVar[tuple[float, float]] = (1.0, 10.0)

    @abstractmethod
    def request(self, instruction: str, response: str) -> JudgeRequest:
        """Return the request about a response. The same texts give the same request."""

    @abstractmethod
    def grade(self, reply: JudgeReply) -> float | None:
        """Return the grade; None if the reply has no grade on the scale."""

    def on_scale(self, value: float) -> float | None:
        """Return a grade that is on the scale, and None for another number."""
        return value if self.scale[0] <= value <= self.scale[1] else None


JUDGES: Family[Judge] = Family(
    name="judge",
    title="Judges of responses",
    bases=("emobench.kinds.instruct.judging.judge:PairJudge", "emobench.kinds.instruct.judging.judge:GradeJudge"),
    checks="emobench.kinds.instruct.judging.checks:checks",
    facts="emobench.kinds.instruct.judging.checks:facts",
    columns=("reads", "model"),
    example="emobench.kinds.instruct.judging.checks:example",
    templates=Path(__file__).parent / "templates",
    usage=("emobench judges show $name", "emobench judge emo mle --set judge.name=$name"),
)
