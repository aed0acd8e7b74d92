"""A local model as the one who answers: transformers' own `generate` and forward pass are the reference."""

from __future__ import annotations

import math
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from emobench.core.errors import ModelError
from emobench.data.oracle.language import oracle_tokenizer, oracle_words
from emobench.kinds.instruct.judging.judge import Asked, JudgeReply, JudgeRequest
from emobench.kinds.instruct.judging.local import LocalModel

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}{% if add_generation_prompt %}" + (
    oracle_words()[3] + "{% endif %}"
)
GREEDY = {"temperature": 0.0, "max_tokens": 6}


@pytest.fixture(scope="module", params=["rotary positions", "learned positions"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(1)
    ids: Any = {
        "vocab_size": len(oracle_tokenizer()),
        "eos_token_id": len(oracle_tokenizer()) - 1,
        "bos_token_id": None,
    }
    if request.param == "learned positions":
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.3}
        return GPT2LMHeadModel(GPT2Config(**sizes, **ids)).eval()
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=64, **sizes, **ids)).eval()


def local(model: Any, template: str | None = TEMPLATE) -> LocalModel:
    tokenizer = oracle_tokenizer()
    tokenizer.chat_template = template
    return LocalModel(SimpleNamespace(model=model, tokenizer=tokenizer), "a-judge")  # type: ignore[arg-type]


def words(*places: int) -> str:
    return " ".join(oracle_words()[place] for place in places)


def ask(judge: LocalModel, requests: dict[str, JudgeRequest], *more: Any) -> tuple[dict[str, JudgeReply], Asked]:
    kept: dict[str, JudgeReply] = {}
    return kept, judge.ask(requests, kept.__setitem__, *more)


def ids_of(text: Any) -> torch.Tensor:
    return oracle_tokenizer()(text, return_tensors="pt").input_ids


def test_replies_are_those_of_generate(model: Any) -> None:
    requests = {str(n): JudgeRequest(words(*range(5, 6 + n)), GREEDY) for n in range(5)}
    requests["chat"] = JudgeRequest(({"role": "user", "content": words(9, 8)},), GREEDY)
    kept, asked = ask(local(model), requests)
    assert asked.replies == 6
    texts = {key: request.prompt for key, request in requests.items()} | {"chat": f"{words(9, 8)} {words(3)}"}
    for key, text in texts.items():
        ids = ids_of(text)
        with torch.no_grad():
            expected = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
        assert kept[key].text == oracle_tokenizer().decode(expected[0, ids.shape[1] :], skip_special_tokens=True)
        assert (kept[key].prompt_tokens, kept[key].model) == (ids.shape[1], "a-judge")


def test_the_likeliest_first_tokens_have_their_log_probabilities(model: Any) -> None:
    requests = {str(n): JudgeRequest(words(*range(5, 6 + 3 * n)), {**GREEDY, "top_logprobs": 4}) for n in range(3)}
    kept, _ = ask(local(model), requests)
    for key, request in requests.items():
        with torch.no_grad():
            top = torch.log_softmax(model(ids_of(request.prompt)).logits[0, -1], -1).topk(4)
        (likeliest,) = kept[key].top_logprobs
        assert list(likeliest) == [oracle_tokenizer().decode([token]) for token in top.indices.tolist()]
        assert list(likeliest.values()) == pytest.approx(top.values.tolist(), abs=1e-5)


def test_tokens_with_one_text_add_up(model: Any) -> None:
    """As LLaMA's tokens for "m" with and without a space before it; more tokens of a text than are asked for.

    The reply of one token draws nothing at temperature 1, as AlpacaEval 2 asks: it is the likeliest text.
    """

    class Merging:
        """A tokenizer whose tokens have the texts a to e in turn."""

        inner = oracle_tokenizer()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __call__(self, *args: Any, **options: Any) -> Any:
            return self.inner(*args, **options)

        def __len__(self) -> int:
            return len(self.inner)

        def decode(self, ids: Any, **options: Any) -> str:
            return "".join("abcde"[int(token) % 5] for token in ids)

        def batch_decode(self, rows: Any, **options: Any) -> list[str]:
            return [self.decode(row) for row in rows]

    judge = LocalModel(SimpleNamespace(model=model, tokenizer=Merging()), "a-judge")  # type: ignore[arg-type]
    options = {"temperature": 1, "max_tokens": 1, "top_logprobs": 3}
    requests = {str(n): JudgeRequest(words(*range(5, 9 + n)), options) for n in range(3)}
    kept, _ = ask(judge, requests)
    for key, request in requests.items():
        ids = ids_of(request.prompt)
        with torch.no_grad():
            probs = torch.softmax(model(ids).logits[0, -1].double(), -1)
        masses = {text: float(probs[place::5].sum()) for place, text in enumerate("abcde")}
        likeliest = sorted(masses, key=lambda text: -masses[text])[:3]
        (top,) = kept[key].top_logprobs
        assert list(top) == likeliest
        assert [math.exp(top[text]) for text in likeliest] == pytest.approx([masses[t] for t in likeliest], rel=1e-5)
        assert (kept[key].text, kept[key].prompt_tokens, kept[key].reply_tokens) == (likeliest[0], ids.shape[1], 1)
    with pytest.raises(ModelError, match="a temperature of 1"):
        ask(judge, {"one": JudgeRequest(words(5), {**options, "max_tokens": 2})})


def test_a_prompt_that_is_too_long_is_refused_and_the_others_are_answered(model: Any) -> None:
    told: list[tuple[int, int]] = []
    requests = {"long": JudgeRequest(words(*[5] * 60), GREEDY), "short": JudgeRequest(words(5), GREEDY)}
    requests |= {"fits": JudgeRequest(words(*[5] * 59), GREEDY), "unlimited": JudgeRequest(words(5))}
    kept, asked = ask(local(model), requests, lambda *done: told.append(done))
    assert set(kept) == {"fits", "short"}
    assert asked.refused == {
        "long": "a-judge reads at most 64 tokens, and the prompt has 60 with 6 for the reply",
        "unlimited": "a-judge reads at most 64 tokens, and the prompt has 1 with 512 for the reply",
    }
    assert (asked.replies, asked.final, asked.failed) == (2, True, {})
    assert told == [(3, 4), (4, 4)]


def test_a_reply_ends_where_the_model_ends_it(model: Any) -> None:
    ending = deepcopy(model)
    with torch.no_grad():
        hidden = ending.base_model(ids_of(words(5))).last_hidden_state[0, -1]
        ending.set_output_embeddings(torch.nn.Linear(16, len(oracle_tokenizer()), bias=False))
        ending.get_output_embeddings().weight.zero_()[oracle_tokenizer().eos_token_id] = 1e4 * hidden
    certain = JudgeRequest(words(5), {"max_tokens": 1, "temperature": 1, "top_logprobs": 3})
    kept, _ = ask(local(ending), {"a": JudgeRequest(words(5), {"max_tokens": 4}), "certain": certain})
    assert kept["certain"].top_logprobs == ({"<eos>": 0.0},)  # the others' probabilities are 0 in float32
    assert (kept["a"].text, kept["a"].prompt_tokens, kept["a"].reply_tokens) == ("", 1, 0)


def test_messages_without_a_template_and_random_replies_are_refused(model: Any) -> None:
    chat = JudgeRequest(({"role": "user", "content": words(9)},), GREEDY)
    for judge, request in ((local(model, None), chat), (local(model), JudgeRequest("a", {"temperature": 0.7}))):
        with pytest.raises(ModelError):
            judge.check(request)
        with pytest.raises(ModelError):
            ask(judge, {"one": request})
