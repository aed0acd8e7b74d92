"""The rules of tasks of kind `generation`: how prompts are cut, continued, and compared with human texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emobench.core.settings import check_settings, setting
from emobench.inference.decoding.request import Sampling
from emobench.kinds.shared_rules import CoherenceRule, MauveRule, OracleRule
from emobench.models.model import AuxiliaryModel
from emobench.tasks.rules import Rules


@dataclass(frozen=True, kw_only=True)
class PromptRule(Rules):
    """How prompts are cut from texts.

    A text is used if it holds at least prefix + continuation + margin units and `min_characters` characters, and none
    of the strings in `without`. A BOS counts as no unit.
    """

    split: Literal["test", "validation"] = "test"
    """The split of the corpus that prompts are cut from."""
    unit: Literal["tokens", "words"] = "tokens"
    """Unit of lengths: tokens of the evaluated tokenizer, or words split on single spaces (official code)."""
    prefix: int = setting(20, low=1, high=2**20)
    """Length of a prompt, in `unit`."""
    continuation: int = setting(80, low=1, high=2**20)
    """Length of a continuation, in `unit`."""
    margin: int = setting(0, low=0, high=10**9)
    """Minimum length of a text beyond prefix and continuation, in `unit`."""
    min_characters: int = setting(0, low=0, high=10**9)
    """Minimum number of characters of a text."""
    without: tuple[str, ...] = ()
    """Texts with any of these strings are not used."""
    first_texts: int | None = setting(None, low=1, high=10**12)
    """Number of texts of the split that are considered, the first ones. None: all."""
    bos: Literal["tokenizer", "none", "one"] = "none"
    """Whether each prompt begins with a beginning-of-text token: "tokenizer" if the tokenizer adds one by itself."""
    joiner: str = ""
    """Text between prefix and continuation, as MAUVE and ROUGE read it."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def shortest(self) -> int:
        """Units that a text must hold to be used."""
        return self.prefix + self.continuation + self.margin


@dataclass(frozen=True, kw_only=True)
class GenerationProtocol(PromptRule):
    """Continuations of prefixes of real texts (EMO paper, 4.1)."""

    ABSENT_BY_DEFAULT = ("metrics", "documents")

    sampling: Sampling = Sampling()
    """How continuations are decoded."""
    mauve: MauveRule = MauveRule()
    """How MAUVE is computed."""
    oracle: OracleRule = OracleRule()
    """The model of PPL_oracle."""
    coherence: CoherenceRule = CoherenceRule()
    """The encoder of coherence."""
    stemming: bool = False
    """Whether ROUGE stems words."""
    max_length: int = setting(256, low=1, high=2**20)
    """Block length of the split's text for PPL_test."""
    test_blocks: int | None = setting(None, low=1, high=10**12)
    """Maximum number of blocks for PPL_test. None: all."""
    documents: Literal["stream"] | None = None
    """stream: the rows of the corpus are pieces of one text, such as lines of a book, so that runs of rows are its
    sampling units. null: as the corpus says; each row of a local file or a hub corpus is a document."""
    limit: int | None = setting(None, low=1, high=10**12)
    """Maximum number of prompts. None: all texts that are long enough."""
    metrics: tuple[str, ...] = ()
    """Metrics of installed packages, next to the built-in ones, such as "fluency(judge=gpt2-large)"."""

    @property
    def text_tokens(self) -> int | None:
        """Maximum tokens of a compared text, by the evaluated tokenizer; None if lengths are in words."""
        if self.unit != "tokens":
            return None
        return self.prefix + self.continuation + self.sampling.extra_tokens

    @property
    def auxiliary_models(self) -> dict[str, AuxiliaryModel]:
        """MAUVE's featurizer, and the models of PPL_oracle and coherence if these are computed."""
        models = {"featurizer": self.mauve.model}
        if self.oracle.model is not None:
            models["oracle"] = AuxiliaryModel(self.oracle.model, "lm", setting="oracle.model")
        if self.coherence.encoder is not None:
            instead = "leave coherence out with --set coherence.encoder=null"
            models["coherence"] = AuxiliaryModel(
                self.coherence.encoder, "sentences", setting="coherence.encoder", instead=instead
            )
        return models
