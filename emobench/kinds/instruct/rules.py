"""The rules of tasks of kind `instruct`: how instructions become prompts, and how responses are decoded."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal
from urllib.parse import urlsplit

from emobench.core.errors import ConfigError
from emobench.core.settings import check_settings, setting
from emobench.inference.decoding.request import Sampling
from emobench.models.model import AuxiliaryModel
from emobench.tasks.rules import RuleGroup, Rules, model_rule, seeds

if TYPE_CHECKING:
    from emobench.kinds.instruct.judging.endpoint import Endpoint
    from emobench.kinds.instruct.judging.judge import Judge

NOBODY = "none"


def public_address(url: str) -> str:
    """Return an address without a user, a password or a query; empty for a text that is none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return ""


@dataclass(frozen=True, kw_only=True)
class JudgeRule(RuleGroup):
    """The judge that compares the responses with the references, and the model that it asks."""

    NOT_IDENTIFYING: ClassVar = ("url", "concurrency", "per_minute", "retries", "seconds")

    name: str = NOBODY
    """A judge of `emobench judges list`, with parameters: "alpaca-eval(config=alpaca_eval_gpt4)". none: no judge."""
    model: str | None = model_rule(None)
    """The judge's model: a name at the endpoint, or a local model. null: the model that the judge's authors use."""
    backend: Literal["endpoint", "local"] = "endpoint"
    """endpoint: an address with OpenAI's protocol, whose key is OPENAI_API_KEY. local: a model on this machine."""
    url: str | None = None
    """The address of the endpoint, which ends in /v1 as a rule, without a user or a query. null: OPENAI_BASE_URL, or
    OpenAI's own."""
    concurrency: int = setting(8, low=1, high=10_000)
    """Maximum concurrent requests."""
    per_minute: float | None = setting(None, above=0, high=10**9)
    """Maximum requests per minute. null: no limit."""
    retries: int = setting(6, low=0, high=1000)
    """Retries after an error of the connection or of the server."""
    seconds: float = setting(120.0, above=0, high=10**6)
    """Seconds for one attempt."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.url is not None and (self.url != (public_address(self.url) or None) or ";" in self.url):
            raise ConfigError(  # without the address, which may hold a secret
                "`judge.url` is not an address without a user, a password and a query; expected one such as "
                "http://localhost:8000/v1. A key belongs into the variable OPENAI_API_KEY, and an address with secrets "
                "into OPENAI_BASE_URL: settings are written to files and published."
            )
        if self.name == NOBODY and self.model is not None:
            raise ConfigError(
                f"`judge.model` is {self.model}, and no judge is named that would ask it; add --set judge.name=NAME, "
                "see `emobench judges list`."
            )

    @property
    def used(self) -> bool:
        """Whether a judge is named."""
        return self.name != NOBODY

    def model_of(self, judge: Judge) -> str:
        """Return the name of the model that answers for a judge."""
        return self.model or judge.model

    def endpoint(self, judge: Judge) -> Endpoint:
        """Return the endpoint that answers for a judge."""
        from emobench.kinds.instruct.judging.endpoint import Endpoint

        return Endpoint(self.model_of(judge), self)

    def local_model(self, judge: Judge) -> AuxiliaryModel:
        """Return the model on this machine that answers for a judge."""
        return AuxiliaryModel(self.model_of(judge), "lm", setting="judge.model")


@dataclass(frozen=True, kw_only=True)
class InstructProtocol(Rules):
    """Responses to instructions, compared with those of the data set."""

    ABSENT_BY_DEFAULT = ("backend",)
    NOT_IDENTIFYING: ClassVar = ("other_template",)

    template: Literal["alpaca", "chat"] = "alpaca"
    """The template of prompts, which must be that of the training, recipe.template. alpaca: the prompt of Stanford
    Alpaca. chat: the chat template of the model's tokenizer."""
    other_template: bool = False
    """Whether the template may differ from that of the training."""
    max_new_tokens: int = setting(512, low=1, high=2**20)
    """Maximum tokens of a response. It ends earlier at EOS, or where the template ends a turn."""
    temperature: float = setting(0.0, low=0, high=1000)
    """0: the likeliest token at each step. Otherwise tokens are drawn, after the logits are divided by it."""
    top_p: float = setting(1.0, above=0, high=1)
    """Draw from the likeliest tokens that together have this probability. 1 keeps all."""
    seed: int = 0
    """Sampling seed, shared by all objectives."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """Decoding backend, as generation.sampling.backend. vllm has its own random numbers, so it is another protocol."""
    judge: JudgeRule = JudgeRule()
    """The judge that compares the responses with the references."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Maximum number of instructions, the first ones."""

    def __post_init__(self) -> None:
        check_settings(self)
        seeds("seed", self.seed)
        if self.top_p < 1 and not self.temperature:
            raise ConfigError(
                f"`top_p` is {self.top_p}, and `temperature` is 0, which draws nothing; add --set "
                "instruct.temperature=1, or drop top_p."
            )
        _ = self.sampling  # which has more to check

    @property
    def sampling(self) -> Sampling:
        """The rules of decoding, as the engine takes them."""
        if not self.temperature:
            return Sampling(method="greedy", suppress_eos=False, backend=self.backend)
        drawn = {"seed": self.seed, "temperature": self.temperature, "top_p": self.top_p}
        return Sampling(**drawn, suppress_eos=False, backend=self.backend)
