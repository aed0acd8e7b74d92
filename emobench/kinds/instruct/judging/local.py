"""A language model on this machine that answers the requests of a judge.

Messages become a prompt by the tokenizer's chat template; a text is continued as it is. Replies are the likeliest token
at each step: `temperature` must be 0. Of the first token, the likeliest texts have their log probabilities where a
request asks for them: several tokens may be one text, such as LLaMA's "m" with and without a space before it, and their
probabilities add up. Where that token is the whole reply, nothing is drawn, and `temperature` may be 1.

Legend: B requests of a batch, T positions, V vocabulary, D different texts of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from emobench.core.errors import ModelError
from emobench.core.settings import content_hash
from emobench.data.chat_templates import RULES, end_of, frame_of, text_ids
from emobench.inference.decoding.continuations import iter_continuations
from emobench.inference.decoding.request import Decoding, Sampling
from emobench.kinds.instruct.judging.judge import Asked, JudgeReply, JudgeRequest, KeepReply, Progress, Requests
from emobench.metrics.batching import by_length, pad, reading
from emobench.models.head import context_of, token_count
from emobench.models.model import Model

GREEDY = Sampling(method="greedy", suppress_eos=False)
LENGTH = 512
"""Tokens of a reply where a request names no `max_tokens`."""
BUDGET = 16_384
"""Tokens of a batch that is read for log probabilities."""


LOCAL_RULES = 2
"""Of replies; part of the identity. 2: the probabilities of several tokens with one text add up."""
Tops = tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class LocalModel:
    """Answers with a causal LM."""

    handle: Model
    name: str

    @property
    def identity(self) -> str:
        return f"{content_hash(dict(self.handle.identity))}/{RULES}/{LOCAL_RULES}"

    @cached_property
    def _token_texts(self) -> tuple[list[str], torch.Tensor]:
        """The different texts of single tokens, (D,), and the place of each token's text among them, (V,)."""
        tokenizer = self.handle.tokenizer
        places = {}
        place_of_token = []
        for text in tokenizer.batch_decode([[token] for token in range(token_count(tokenizer))]):
            place_of_token.append(places.setdefault(text, len(places)))
        return list(places), torch.tensor(place_of_token)

    def check(self, request: JudgeRequest) -> None:
        self.prompt_ids(request)

    def ask(
        self,
        requests: Requests,
        keep: KeepReply,
        progress: Progress = lambda done, total: None,
    ) -> Asked:
        """Answer the requests, in batches of prompts of similar length; a prompt that does not fit is refused.

        Raises ModelError for messages without a chat template, and for a request that needs random numbers.
        """
        asked = Asked(final=True)
        context = context_of(self.handle.model)
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
            own = {key: requests[key] for key in keys}
            for key, reply in self._answered(own, prompts, length):
                keep(key, reply)
                asked.replies += 1
                progress(asked.replies + len(asked.refused), len(requests))
        return asked

    def prompt_ids(self, request: JudgeRequest) -> list[int]:
        """Return the tokens of the prompt. Raises ModelError as `ask` does."""
        options = request.options
        tokenizer = self.handle.tokenizer
        # A reply of one token whose log probabilities, at temperature 1, are the verdict draws nothing.
        verdict = (options.get("max_tokens"), options.get("temperature")) == (1, 1) and options.get("top_logprobs")
        if options.get("temperature", 0) and not verdict:
            raise ModelError(
                f"The judge asks for a temperature of {options['temperature']}, and a local model answers with "
                "the likeliest tokens. Use an endpoint: --set judge.url=URL."
            )
        if isinstance(request.prompt, str):
            return tokenizer(request.prompt, verbose=False)["input_ids"]
        if not tokenizer.chat_template:
            raise ModelError(
                f"The judge writes messages, and the tokenizer of {self.name} has no chat template. Give a chat model, "
                "or a judge that writes a text."
            )
        return text_ids(tokenizer, frame_of(tokenizer, request.prompt).prompt)

    def _answered(
        self, requests: Requests, prompts: Mapping[str, list[int]], length: int
    ) -> Iterator[tuple[str, JudgeReply]]:
        """Yield (key, reply) of requests of one form, texts or messages, whose replies have one length at most."""
        tokenizer = self.handle.tokenizer
        tops = self._top_logprobs(requests, prompts)
        keys = list(requests)
        if length == 1:  # the likeliest token of those is the whole reply
            for key, top in tops.items():
                text = max(top[0], key=top[0].__getitem__)
                yield key, JudgeReply(text, top, self.name, len(prompts[key]), 1)
            keys = [key for key in keys if key not in tops]
        if not keys:
            return
        ends: tuple[int, ...] = ()  # besides those of the model's configuration
        first = requests[keys[0]].prompt
        if not isinstance(first, str):
            ends = end_of(tokenizer, frame_of(tokenizer, first).after).ids
        ids = [prompts[key] for key in keys]
        options = {"decoding": Decoding(rule=GREEDY, length=length), "vocabulary": token_count(tokenizer)}
        for batch in iter_continuations(self.handle.model, ids, prompt_keys=keys, ends=ends, **options):
            for index, (one,) in batch:
                key, text = keys[index], tokenizer.decode(one.ids, skip_special_tokens=True)
                yield key, JudgeReply(text, tops.get(key, ()), self.name, len(ids[index]), len(one.ids))

    def _top_logprobs(self, requests: Requests, prompts: Mapping[str, list[int]]) -> dict[str, Tops]:
        """Return the likeliest texts of the first token, of those requests that ask for them."""
        asking = [key for key, request in requests.items() if request.options.get("top_logprobs")]
        tops = {}
        for members in by_length([len(prompts[key]) for key in asking], BUDGET):
            keys = [asking[i] for i in members]
            with reading(self.handle.model) as device:
                ids_BT, mask_BT = pad([prompts[key] for key in keys], 0, device, left=True)
                places_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
                output = self.handle.model(
                    input_ids=ids_BT, attention_mask=mask_BT, position_ids=places_BT, logits_to_keep=1
                )
                logits_BV = output.logits[:, -1, : token_count(self.handle.tokenizer)]
                probs_BV = torch.softmax(logits_BV.float(), -1).cpu().double()
            texts, place_V = self._token_texts
            probs_BD = torch.zeros(len(keys), len(texts), dtype=torch.double)
            probs_BD.index_add_(1, place_V[: probs_BV.shape[1]], probs_BV)
            for key, row_D in zip(keys, probs_BD, strict=True):
                top = row_D.topk(min(int(requests[key].options["top_logprobs"]), len(texts)))
                likeliest = {}
                for place, prob in zip(top.indices.tolist(), top.values.tolist(), strict=True):
                    if prob > 0:
                        likeliest[texts[place]] = math.log(prob)
                tops[key] = (likeliest,)
        return tops
