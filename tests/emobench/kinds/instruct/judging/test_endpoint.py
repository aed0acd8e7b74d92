"""Requests to an endpoint over the loopback: each is answered once, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import sys
import time
from pathlib import Path

import pytest

from emobench.errors import ModelError, RunError
from emobench.kinds.instruct.judging.endpoint import BROKEN, HOPELESS, Endpoint
from emobench.kinds.instruct.judging.judge import JudgeReply, JudgeRequest

sys.path.insert(0, str(Path(__file__).parent))
from endpoints import Scripted, serving

FAULTS = ("slow_down", "server_error", "cut", "broken_json", "no_choice", "trickle")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of the package are cut short, and no key or address comes from the environment."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.02)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def chat(text: str) -> JudgeRequest:
    return JudgeRequest(({"role": "user", "content": text},), {"max_tokens": 5, "temperature": 0})


def endpoint(server: Scripted, **given: object) -> Endpoint:
    return Endpoint(**{"model": "a-judge", "url": server.url, "seconds": 0.5, "retries": 4, **given})  # type: ignore[arg-type]


def test_replies_have_their_text_their_tokens_and_the_models_own_name() -> None:
    kept: dict[str, JudgeReply] = {}
    with serving(lambda prompt: f"about {prompt}") as server:
        asked = endpoint(server).ask({"a": chat("one"), "b": JudgeRequest("two", {"max_tokens": 9})}, kept.__setitem__)
    assert asked.replies == 2
    assert kept["a"] == JudgeReply("about one", (), "a-judge-2026", 7, 3)
    assert kept["b"].text == "about two"
    assert {body["model"] for body in server.bodies} == {"a-judge"}
    assert sorted(body["max_tokens"] for body in server.bodies) == [5, 9]


def test_it_asks_in_a_notebook_too() -> None:
    """There, a loop runs in the thread already."""

    async def cell(server: Scripted) -> int:
        return endpoint(server).ask({"a": chat("one")}, lambda key, reply: None).replies

    with serving(lambda prompt: prompt) as server:
        assert asyncio.run(cell(server)) == 1


def test_log_probabilities_of_the_first_tokens_are_read() -> None:
    kept: dict[str, JudgeReply] = {}
    with serving(lambda prompt: "m") as server:
        request = JudgeRequest(({"role": "user", "content": "which"},), {"logprobs": True, "top_logprobs": 5})
        endpoint(server).ask({"a": request}, kept.__setitem__)
    # The server names two tokens with the text "m".
    both = pytest.approx(math.log(math.exp(-0.25) + math.exp(-3.0)))
    assert kept["a"].top_logprobs == ({"m": both, "M": -1.5},)


def test_every_request_is_answered_once_through_every_fault() -> None:
    chosen = random.Random(0)
    plan = {str(i): [chosen.choice(FAULTS) for _ in range(chosen.randrange(3))] for i in range(60)}
    kept: list[str] = []

    def faults(prompt: str, attempt: int) -> str | None:
        return plan[prompt][attempt - 1] if attempt <= len(plan[prompt]) else None

    with serving(lambda prompt: prompt, faults) as server:
        requests = {key: chat(key) for key in plan}
        asked = endpoint(server, concurrency=12).ask(requests, lambda key, reply: kept.append(f"{key}={reply.text}"))
    assert sorted(kept) == sorted(f"{key}={key}" for key in plan)
    assert asked.failed == asked.refused == {}
    assert {key: server.attempts[key] for key in plan} == {key: len(row) + 1 for key, row in plan.items()}


def test_what_is_spent_on_a_request_is_bounded() -> None:
    with serving(faults=lambda prompt, attempt: "broken_json" if prompt == "bad" else None) as server:
        asked = endpoint(server).ask({"bad": chat("bad"), "good": chat("good")}, lambda key, reply: None)
    assert set(asked.failed) == {"bad"}
    assert "could not be read" in asked.failed["bad"]
    assert server.attempts["bad"] == 1 + BROKEN
    with serving(faults=lambda prompt, attempt: "server_error" if prompt == "bad" else None) as server:
        asked = endpoint(server, retries=3).ask({"bad": chat("bad"), "good": chat("good")}, lambda key, reply: None)
    assert asked.failed == {"bad": "500, internal"}
    assert server.attempts["bad"] == 1 + 3


def test_a_request_that_is_refused_is_not_sent_again() -> None:
    with serving(faults=lambda prompt, attempt: "too_long" if prompt == "long" else None) as server:
        asked = endpoint(server).ask({"long": chat("long"), "short": chat("short")}, lambda key, reply: None)
    assert list(asked.refused) == ["long"]
    assert "maximum context length" in asked.refused["long"]
    assert asked.replies == server.attempts["long"] == 1


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("wrong_key", r"http://127\.0\.0\.1:\d+/v1 refuses the key \(401\)\. Set OPENAI_API_KEY\."),
        ("unknown", r"has no model a-judge, or is not an OpenAI-compatible endpoint"),
    ],
)
def test_what_no_request_can_survive_is_one_sentence(fault: str, sentence: str) -> None:
    with serving(faults=lambda prompt, attempt: fault) as server, pytest.raises(ModelError, match=sentence):
        endpoint(server, concurrency=1).ask({str(i): chat(str(i)) for i in range(9)}, lambda key, reply: None)
    assert sum(server.attempts.values()) == 1


def test_an_address_where_nobody_answers_is_one_sentence_at_once() -> None:
    with serving() as server:
        gone = endpoint(server)
    begun = time.monotonic()
    with pytest.raises(ModelError, match=r"Nobody answers at http://127\.0\.0\.1:\d+/v1\. Start the server"):
        gone.ask({"a": chat("a")}, lambda key, reply: None)
    assert time.monotonic() - begun < 10


def test_an_endpoint_that_is_down_is_left_alone_and_what_it_answered_is_kept() -> None:
    kept: list[str] = []
    requests = {str(i): chat(str(i)) for i in range(50)}
    expected = rf"no reply to {HOPELESS} requests in a row: 500, internal\. The 3 replies before them are kept"
    with (
        serving(faults=lambda prompt, attempt: "server_error" if int(prompt) > 2 else None) as server,
        pytest.raises(RunError, match=expected),
    ):
        endpoint(server, concurrency=1, retries=1).ask(requests, lambda key, reply: kept.append(key))
    assert kept == ["0", "1", "2"]
    assert len(server.attempts) == 3 + HOPELESS


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(ModelError, match=r"Set OPENAI_API_KEY, or --set judge\.url=URL"):
        Endpoint(model="gpt-4").ask({"a": chat("a")}, lambda key, reply: None)


def test_requests_keep_to_a_rate() -> None:
    with serving() as server:
        begun = time.monotonic()
        endpoint(server, per_minute=1200).ask({str(i): chat(str(i)) for i in range(7)}, lambda key, reply: None)
    assert time.monotonic() - begun >= 6 * 60 / 1200


def test_an_address_is_shown_without_what_is_secret() -> None:
    assert Endpoint(model="m", url="https://me:secret@host:81/v1?key=secret").address == "https://host:81/v1"


def test_a_judge_in_a_folder_here_is_known_by_its_content(byte_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "judge"
    shutil.copytree(byte_model, folder)
    one = Endpoint(model=str(folder), url="http://127.0.0.1:1/v1")
    before = one.identity
    assert before == Endpoint(model=str(folder), url="http://127.0.0.1:2/v1").identity != str(folder)
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert one.identity != before
    assert Endpoint(model="a-judge").identity == "a-judge"
