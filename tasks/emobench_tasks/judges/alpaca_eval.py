"""AlpacaEval's judges: prompts and parsers of the package alpaca-eval, by the names of its configurations."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import emobench

FIELD = re.compile(r"\{(instruction|output_1|output_2)\}")


@dataclass(frozen=True, kw_only=True)
class AlpacaEval(emobench.PairJudge):
    """Dubois et al., 2023 and 2024. `alpaca_eval_gpt4` is AlpacaEval 1; `weighted_alpaca_eval_gpt4_turbo` is 2."""

    name = "alpaca-eval"
    packages = ("alpaca-eval",)
    examples: ClassVar = {
        "[{'model': 'model_1', 'rank': 1}, {'model': 'model_2', 'rank': 2}]": 1.0,
        "[{'model': 'model_1', 'rank': 2}, {'model': 'model_2', 'rank': 1}]": 0.0,
    }
    config: str = "alpaca_eval_gpt4"
    """The annotator: a folder of the package's `evaluators_configs`, whose prompt is about one pair."""

    def __post_init__(self) -> None:
        asks, batch = self._annotator["fn_completions"], self._annotator.get("batch_size", 1)
        if asks != "openai_completions" or batch != 1 or not self._prompt.lstrip().startswith("<|im_start|>"):
            raise ValueError(f"`config` is {self.config}, which does not ask a chat model about one pair at a time.")

    @property
    def model(self) -> str:  # type: ignore[override]
        return self._annotator["completions_kwargs"]["model_name"]

    @property
    def graded(self) -> bool:  # type: ignore[override]
        binary = self._annotator.get("completion_parser_kwargs", {}).get("is_binarize", True)
        return self._parser == "logprob_parser" and not binary

    @property
    def _parser(self) -> str:
        return self._annotator.get("fn_completion_parser", "regex_parser")

    @cached_property
    def _annotator(self) -> Mapping[str, Any]:
        import yaml

        with warnings.catch_warnings(action="ignore"):  # of pkg_resources, which the package imports
            from alpaca_eval.constants import EVALUATORS_CONFIG_DIR

        folder = Path(EVALUATORS_CONFIG_DIR)
        file = folder / self.config / "configs.yaml"
        known = sorted(path.parent.name for path in folder.glob("*/configs.yaml"))
        if self.config not in known:
            raise ValueError(f"`config` is {self.config!r}; expected one of {', '.join(known)}.")
        annotators = yaml.safe_load(file.read_text(encoding="utf-8"))
        if len(annotators) != 1:
            raise ValueError(f"`config` is {self.config}, which is a pool of {len(annotators)} annotators; give one.")
        return next(iter(annotators.values()))

    @cached_property
    def _prompt(self) -> str:
        from alpaca_eval.constants import EVALUATORS_CONFIG_DIR

        return (Path(EVALUATORS_CONFIG_DIR) / self._annotator["prompt_template"]).read_text(encoding="utf-8")

    @cached_property
    def _template(self) -> tuple[Mapping[str, str], ...]:
        from alpaca_eval.utils import prompt_to_chatml

        return tuple(prompt_to_chatml(self._prompt))

    def request(self, pair: emobench.Pair) -> emobench.JudgeRequest:
        """The package's prompt. Fields are filled in once: braces and chat markers in a response stay text."""
        fields = {"instruction": pair.asked(), "output_1": pair.first, "output_2": pair.second}
        messages = []
        for message in self._template:
            content = FIELD.sub(lambda match: fields[match[1]], message["content"])
            messages.append({**message, "content": content})
        options = {"temperature": 0.7, "top_p": 1.0, **self._annotator["completions_kwargs"]}
        del options["model_name"]
        return emobench.JudgeRequest(tuple(messages), options)

    def preference(self, reply: emobench.JudgeReply) -> float | None:
        """1 to 2 in the package, where 1 prefers the first response, and 0 is a tie, too."""
        from alpaca_eval import completion_parsers
        from alpaca_eval.utils import DisableLogger

        parse = getattr(completion_parsers, self._parser)
        read: Any = reply.text or " "
        if self._annotator.get("completion_key") == "completions_all":
            content = []
            for top in reply.top_logprobs:
                content.append({"top_logprobs": [{"token": token, "logprob": p} for token, p in top.items()]})
            read = {"text": read, "logprobs": {"content": content}}
        try:
            with DisableLogger():  # it logs each reply that it cannot read, whole
                (parsed,) = parse(read, **self._annotator.get("completion_parser_kwargs", {}))
            value = 1.5 if parsed == 0 else float(parsed)
        except Exception:  # the parsers raise anything for a reply that they cannot read
            return None
        return 2 - value if 1 <= value <= 2 else None


@emobench.hookimpl
def emobench_judges() -> list[type[emobench.Judge]]:
    return [AlpacaEval]
