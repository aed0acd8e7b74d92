"""A local model as the one who answers: transformers' own `generate` and forward pass are the reference."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from emobench.core.errors import ModelError
from emobench.data.oracle.language import oracle_tokenizer, oracle_words
from emobench.kinds.instruct.judging.judge import JudgeReply, JudgeRequest
from emobench.kinds.instruct.judging.local import LocalModel

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}{% if add_generation_prompt %}" + (
    oracle_words()[3] + "{% endif %}"
)
GREEDY = {"temperature": 0.0, "max_tokens": 6}


@pytest.fixture(scope="module", params=["rotary positions", "learned positions"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(1)
    vocabulary = len(oracle_tokenizer())
    if request.param == "learned positions":
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.3}
        config = GPT2Config(vocab_size=vocabulary, eos_token_id=vocabulary - 1, bos_token_id=None, **sizes)
        return GPT2LMHeadModel(config).eval()
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, eos_token_id=vocabulary - 1, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def local(model: Any, template: str | None = TEMPLATE) -> LocalModel:
    tokenizer = oracle_tokenizer()
    tokenizer.chat_template = template
    return LocalModel(model, tokenizer, "a-judge", "digest")


def words(*places: int) -> str:
    return " ".join(oracle_words()[place] for place in places)


def test_replies_are_those_of_generate(model: Any) -> None:
    judge, kept = local(model), dict[str, JudgeReply]()
    requests = {str(n): JudgeRequest(words(*range(5, 6 + n)), GREEDY) for n in range(5)}
    requests["chat"] = JudgeRequest(({"role": "user", "content": words(9, 8)},), GREEDY)
    assert judge.ask(requests, kept.__setitem__).replies == 6
    texts = {key: request.prompt for key, request in requests.items()} | {"chat": f"{words(9, 8)} {words(3)}"}
    for key, text in texts.items():
        ids = judge.tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            expected = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
        assert kept[key].text == judge.tokenizer.decode(expected[0, ids.shape[1] :], skip_special_tokens=True)
        assert kept[key].prompt_tokens == ids.shape[1]
        assert kept[key].model == "a-judge"


def test_the_likeliest_first_tokens_have_their_log_probabilities(model: Any) -> None:
    judge, kept = local(model), dict[str, JudgeReply]()
    requests = {str(n): JudgeRequest(words(*range(5, 6 + 3 * n)), {**GREEDY, "top_logprobs": 4}) for n in range(3)}
    judge.ask(requests, kept.__setitem__)
    for key, request in requests.items():
        ids = judge.tokenizer(request.prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            top = torch.log_softmax(model(ids).logits[0, -1], -1).topk(4)
        (found,) = kept[key].top_logprobs
        assert list(found) == [judge.tokenizer.decode([token]) for token in top.indices.tolist()]
        assert list(found.values()) == pytest.approx(top.values.tolist(), abs=1e-5)


def test_tokens_with_one_text_add_up(model: Any) -> None:
    """As LLaMA's tokens for "m" with and without a space before it; more tokens of a text than are asked for."""

    class Merging:
        """A tokenizer whose tokens have the texts a to e in turn."""

        def __init__(self) -> None:
            self.inner = oracle_tokenizer()

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

    judge, kept = LocalModel(model, Merging(), "a-judge", "digest"), dict[str, JudgeReply]()
    options = {"temperature": 1, "max_tokens": 1, "top_logprobs": 3}
    requests = {str(n): JudgeRequest(words(*range(5, 9 + n)), options) for n in range(3)}
    judge.ask(requests, kept.__setitem__)
    for key, request in requests.items():
        ids = judge.tokenizer(request.prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            probs = torch.softmax(model(ids).logits[0, -1].double(), -1)
        masses = {text: float(probs[place::5].sum()) for place, text in enumerate("abcde")}
        likeliest = sorted(masses, key=lambda text: -masses[text])[:3]
        (found,) = kept[key].top_logprobs
        assert list(found) == likeliest
        assert [math.exp(found[text]) for text in likeliest] == pytest.approx([masses[t] for t in likeliest], rel=1e-5)
        assert kept[key].text == likeliest[0]


def test_a_verdict_of_one_tokens_probabilities_may_ask_for_temperature_one(model: Any) -> None:
    """As AlpacaEval 2 asks: nothing is drawn, and the reply is the likeliest of the tokens with their probabilities."""
    judge, kept = local(model), dict[str, JudgeReply]()
    options = {"temperature": 1, "max_tokens": 1, "top_logprobs": 3}
    prompt = words(*range(5, 12))
    judge.ask({"one": JudgeRequest(prompt, options), "two": JudgeRequest(prompt, GREEDY)}, kept.__setitem__)
    ids = judge.tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        likeliest = int(model(ids).logits[0, -1].argmax())
    one = kept["one"]
    assert one.text == judge.tokenizer.decode([likeliest]) == next(iter(one.top_logprobs[0]))
    assert (one.prompt_tokens, one.reply_tokens) == (ids.shape[1], 1)
    with pytest.raises(ModelError, match="a temperature of 1, and a local model"):
        judge.ask({"one": JudgeRequest(prompt, {**options, "max_tokens": 2})}, kept.__setitem__)


def test_a_prompt_that_is_too_long_is_refused_and_the_others_are_answered(model: Any) -> None:
    kept, told = dict[str, JudgeReply](), []
    requests = {"long": JudgeRequest(words(*[5] * 60), GREEDY), "short": JudgeRequest(words(5), GREEDY)}
    requests |= {"fits": JudgeRequest(words(*[5] * 59), GREEDY), "unlimited": JudgeRequest(words(5))}
    found = local(model).ask(requests, kept.__setitem__, lambda *done: told.append(done))
    assert set(kept) == {"fits", "short"}
    assert found.refused == {
        "long": "a-judge reads at most 64 tokens, and the prompt has 60 with 6 for the reply",
        "unlimited": "a-judge reads at most 64 tokens, and the prompt has 1 with 512 for the reply",
    }
    assert (found.replies, found.final, found.failed) == (2, True, {})
    assert told == [(3, 4), (4, 4)]


def test_a_reply_ends_where_the_model_ends_it(model: Any) -> None:
    ending, kept = deepcopy(model), dict[str, JudgeReply]()
    judge = local(ending)
    ids = judge.tokenizer(words(5), return_tensors="pt").input_ids
    with torch.no_grad():
        hidden = ending.base_model(ids).last_hidden_state[0, -1]
        ending.set_output_embeddings(torch.nn.Linear(16, len(judge.tokenizer), bias=False))
        ending.get_output_embeddings().weight.zero_()[judge.tokenizer.eos_token_id] = 1e4 * hidden
    certain = JudgeRequest(words(5), {"max_tokens": 1, "temperature": 1, "top_logprobs": 3})
    judge.ask({"a": JudgeRequest(words(5), {"max_tokens": 4}), "certain": certain}, kept.__setitem__)
    assert kept["certain"].top_logprobs == ({"<eos>": 0.0},)  # the others' probabilities are 0 in float32
    assert (kept["a"].text, kept["a"].prompt_tokens, kept["a"].reply_tokens) == ("", 1, 0)


def test_what_a_local_model_cannot_do_is_one_sentence(model: Any) -> None:
    chat = JudgeRequest(({"role": "user", "content": words(9)},), GREEDY)
    with pytest.raises(ModelError, match="the tokenizer of a-judge has no chat template"):
        local(model, None).ask({"one": chat}, lambda key, reply: None)
    warm = JudgeRequest(words(9), {"temperature": 0.7})
    with pytest.raises(ModelError, match=r"a temperature of 0\.7, and a local model answers with the likeliest tokens"):
        local(model).ask({"one": warm}, lambda key, reply: None)
