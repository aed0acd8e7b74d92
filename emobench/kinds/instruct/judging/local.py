"""A language model on this machine that answers the requests of a judge.

Messages become a prompt by the tokenizer's chat template; a text is continued as it is. Replies are the likeliest token
at each step: `temperature` must be 0. Of the first token, the likeliest texts have their log probabilities where a
request asks for them: several tokens may be one text, such as LLaMA's "m" with and without a space before it, and their
probabilities add up. Where that token is the whole reply, nothing is drawn, and `temperature` may be 1.

Legend: B requests of a batch, T positions, V vocabulary, D different texts of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from emobench.core.errors import ModelError
from emobench.data.chat_templates import end_of, frame_of, text_ids
from emobench.inference.decoding.continuations import iter_continuations
from emobench.inference.decoding.request import Decoding, Sampling
from emobench.kinds.instruct.judging.judge import Asked, JudgeReply, JudgeRequest, local_identity
from emobench.metrics.batching import by_length, pad, reading
from emobench.models.head import token_count

GREEDY = Sampling(method="greedy", suppress_eos=False)
LENGTH = 512
"""Tokens of a reply where a request names no `max_tokens`."""
BUDGET = 16_384
"""Tokens of a batch that is read for log probabilities."""


@dataclass(frozen=True)
class LocalModel:
    """Answers with a causal LM."""

    model: Any
    tokenizer: Any
    name: str
    digest: str
    """Of the weights and the tokenizer."""

    @property
    def identity(self) -> str:
        return local_identity(self.digest)

    @cached_property
    def _token_texts(self) -> tuple[list[str], torch.Tensor]:
        """The different texts of single tokens, (D,), and the place of each token's text among them, (V,)."""
        texts = self.tokenizer.batch_decode([[token] for token in range(token_count(self.tokenizer))])
        places: dict[str, int] = {}
        place_of_token = [places.setdefault(text, len(places)) for text in texts]
        return list(places), torch.tensor(place_of_token)

    def ask(
        self,
        requests: Mapping[str, JudgeRequest],
        keep: Callable[[str, JudgeReply], None],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Asked:
        """Answer the requests, in batches of prompts of similar length; a prompt that does not fit is refused.

        Raises ModelError for messages without a chat template, and for a request that needs random numbers.
        """
        asked = Asked(final=True)
        context = getattr(self.model.config, "max_position_embeddings", None)
        prompts: dict[str, list[int]] = {}
        forms: dict[tuple[int, bool], list[str]] = {}
        for key, request in requests.items():
            prompts[key] = ids = self.prompt_ids(request)
            length = int(request.options.get("max_tokens", LENGTH))
            if context is not None and len(ids) + length - 1 > context:
                asked.refused[key] = (
                    f"{self.name} reads at most {context} tokens, and the prompt has {len(ids)} with {length} for the "
                    "reply"
                )
            else:
                forms.setdefault((length, isinstance(request.prompt, str)), []).append(key)
        for (length, _), keys in sorted(forms.items()):
            for key, reply in self._answered(keys, prompts, requests, length):
                keep(key, reply)
                asked.replies += 1
                progress(asked.replies + len(asked.refused), len(requests))
        return asked

    def prompt_ids(self, request: JudgeRequest) -> list[int]:
        """Return the tokens of the prompt. Raises ModelError as `ask` does."""
        options = request.options
        # A reply of one token whose log probabilities, at temperature 1, are the verdict draws nothing.
        verdict = (options.get("max_tokens"), options.get("temperature")) == (1, 1) and options.get("top_logprobs")
        if options.get("temperature", 0) and not verdict:
            raise ModelError(
                f"The judge asks for a temperature of {options['temperature']}, and a local model answers with "
                "the likeliest tokens. Use an endpoint: --set judge.url=URL."
            )
        if isinstance(request.prompt, str):
            return self.tokenizer(request.prompt, verbose=False)["input_ids"]
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"The judge writes messages, and the tokenizer of {self.name} has no chat template. Give a chat model, "
                "or a judge that writes a text."
            )
        return text_ids(self.tokenizer, frame_of(self.tokenizer, request.prompt).prompt)

    def _ends(self, request: JudgeRequest) -> tuple[int, ...]:
        """Return the ids that end a reply, besides those of the model's configuration."""
        if isinstance(request.prompt, str):
            return ()
        return end_of(self.tokenizer, frame_of(self.tokenizer, request.prompt).after).ids

    def _answered(
        self,
        keys: list[str],
        prompts: Mapping[str, list[int]],
        requests: Mapping[str, JudgeRequest],
        length: int,
    ) -> Any:
        """Yield (key, reply) of requests of one form, texts or messages, whose replies have one length at most."""
        tops = self._top_logprobs({key: prompts[key] for key in keys}, requests)
        if length == 1:  # the likeliest token of those is the whole reply
            for key, top in tops.items():
                text = max(top[0], key=top[0].__getitem__)
                yield key, JudgeReply(text, top, self.name, len(prompts[key]), 1)
            keys = [key for key in keys if key not in tops]
        if not keys:
            return
        ids = [prompts[key] for key in keys]
        options = {"decoding": Decoding(rule=GREEDY, length=length), "vocabulary": token_count(self.tokenizer)}
        ends = self._ends(requests[keys[0]])
        for batch in iter_continuations(self.model, ids, prompt_keys=keys, ends=ends, **options):
            for index, (one,) in batch:
                key, text = keys[index], self.tokenizer.decode(one.ids, skip_special_tokens=True)
                yield key, JudgeReply(text, tops.get(key, ()), self.name, len(ids[index]), len(one.ids))

    def _top_logprobs(
        self, prompts: Mapping[str, list[int]], requests: Mapping[str, JudgeRequest]
    ) -> dict[str, tuple[Mapping[str, float], ...]]:
        """Return the likeliest texts of the first token, of those requests that ask for them."""
        asking = [key for key in prompts if requests[key].options.get("top_logprobs")]
        tops: dict[str, tuple[Mapping[str, float], ...]] = {}
        for members in by_length([len(prompts[key]) for key in asking], BUDGET):
            keys = [asking[i] for i in members]
            with reading(self.model) as device:
                ids_BT, mask_BT = pad([prompts[key] for key in keys], 0, device, left=True)
                places_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
                output = self.model(input_ids=ids_BT, attention_mask=mask_BT, position_ids=places_BT, logits_to_keep=1)
                logits_BV = output.logits[:, -1, : token_count(self.tokenizer)]
                probs_BV = torch.softmax(logits_BV.float(), -1).cpu().double()
            texts, place_V = self._token_texts
            probs_BD = torch.zeros(len(keys), len(texts), dtype=torch.double)
            probs_BD.index_add_(1, place_V[: probs_BV.shape[1]], probs_BV)
            for key, row_D in zip(keys, probs_BD, strict=True):
                top = row_D.topk(min(int(requests[key].options["top_logprobs"]), len(texts)))
                likeliest = zip(top.indices.tolist(), top.values.tolist(), strict=True)
                tops[key] = ({texts[place]: math.log(prob) for place, prob in likeliest if prob > 0},)
        return tops
