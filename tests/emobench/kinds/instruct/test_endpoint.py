"""Requests to an endpoint over the loopback: each is answered once, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import random
import resource
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from endpoints import Scripted, serving

from emobench.core.errors import ConfigError, ModelError, RunError
from emobench.kinds.instruct.judged import Replies
from emobench.kinds.instruct.judging.endpoint import BROKEN, HOPELESS, Endpoint, Scrubber
from emobench.kinds.instruct.judging.judge import Asked, JudgeReply, JudgeRequest, token_count
from emobench.kinds.instruct.rules import JudgeRule
from emobench.kinds.journal import Journal

FAULTS = ("slow_down", "server_error", "cut", "broken_json", "no_choice", "trickle")


def chat(text: str) -> JudgeRequest:
    return JudgeRequest(({"role": "user", "content": text},), {"max_tokens": 5, "temperature": 0})


def endpoint(server: Scripted, **given: object) -> Endpoint:
    rule: Any = {"url": server.url, "seconds": 0.5, "retries": 4, **given}
    return Endpoint("a-judge", JudgeRule(**rule))


def ask(server: Scripted, *prompts: str, **given: object) -> Asked:
    """Ask prompts, "a" alone by default; no reply is kept."""
    requests = {prompt: chat(prompt) for prompt in prompts or "a"}
    return endpoint(server, **given).ask(requests, lambda key, reply: None)


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
        return ask(server).replies

    with serving(lambda prompt: prompt) as server:
        assert asyncio.run(cell(server)) == 1


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
        asked = ask(server, "bad", "good")
    assert set(asked.failed) == {"bad"}
    assert "could not be read" in asked.failed["bad"]
    assert server.attempts["bad"] == 1 + BROKEN
    with serving(faults=lambda prompt, attempt: "server_error" if prompt == "bad" else None) as server:
        asked = ask(server, "bad", "good", retries=3)
    assert asked.failed == {"bad": "500, internal"}
    assert server.attempts["bad"] == 1 + 3


@pytest.mark.parametrize(
    ("status", "refused"), [(400, True), (413, True), (422, True), (402, False), (414, False), (500, False)]
)
def test_a_request_is_refused_for_what_it_asks(status: int, refused: bool) -> None:
    with serving(faults=lambda prompt, attempt: "echo") as server:
        server.status, server.message = status, "no"
        asked = ask(server, retries=0)
    assert (asked.refused if refused else asked.failed) == {"a": f"{status}, no"}
    assert (asked.failed if refused else asked.refused) == {}
    assert server.attempts["a"] == 1


def test_progress_counts_replies_refusals_and_failures() -> None:
    told: list[tuple[int, int]] = []
    faults = {"b": "too_long", "c": "server_error", "d": "broken_json"}
    with serving(faults=lambda prompt, attempt: faults.get(prompt)) as server:
        requests = {prompt: chat(prompt) for prompt in "abcd"}
        one_by_one = endpoint(server, retries=0, concurrency=1)
        asked = one_by_one.ask(requests, lambda *kept: None, lambda *done: told.append(done))
    assert (asked.replies, set(asked.refused), set(asked.failed), asked.final) == (1, {"b"}, {"c", "d"}, False)
    assert asked.failed["d"].startswith("4 replies could not be read")
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_five_failures_in_a_row_stop_and_a_reply_between_them_does_not() -> None:
    with serving(faults=lambda prompt, attempt: None if prompt in "xyz" else "server_error") as server:
        with pytest.raises(RunError, match=rf"no reply to {HOPELESS} requests in a row: 500, internal\. The 3 replies"):
            ask(server, *"xyzabcdefgh", retries=0, concurrency=1)
        assert list(server.attempts) == list("xyzabcde")
    with serving(faults=lambda prompt, attempt: None if prompt == "e" else "server_error") as server:
        asked = ask(server, *"abcdefghi", retries=0, concurrency=1)
    assert (asked.replies, set(asked.failed)) == (1, set("abcdfghi"))


STOPPING = {"wrong_key": r"refuses the key \(401\)", "unknown": "has no model a-judge", "redirect": r"redirects .*307"}


@pytest.mark.parametrize("fault", [*STOPPING, 300, 399])
def test_what_no_request_can_survive_stops_at_once(fault: Any) -> None:
    faults = {"faults": lambda prompt, attempt: fault if fault in STOPPING else "echo"}
    with serving() as other, serving(**faults) as server:
        server.elsewhere, server.status = f"{other.url}/chat/completions", fault
        with pytest.raises(ModelError, match=rf"/v1 {STOPPING.get(fault, f'redirects .*{fault}')}"):
            ask(server, *"abc", concurrency=1)
    assert sum(server.attempts.values()) == 1
    assert not other.bodies  # a redirect gets no prompt


def test_an_address_where_nobody_answers_and_openai_without_a_key_are_refused() -> None:
    with serving() as server:
        pass
    with pytest.raises(ModelError, match=r"http://127\.0\.0\.1:\d+/v1 does not answer"):
        ask(server)
    with pytest.raises(ModelError, match="Set OPENAI_API_KEY"):
        ask(server, url=None)


def test_requests_keep_to_a_rate() -> None:
    with serving() as server:
        begun = time.monotonic()
        ask(server, *"abcdefg", per_minute=1200)
    assert time.monotonic() - begun >= 6 * 60 / 1200


KEY = 'sk-Very+secret/k="1'
FORMS = [
    KEY, KEY.upper(), quote(KEY), quote(KEY, safe=""), quote_plus(KEY), KEY.encode().hex(), json.dumps(KEY)[1:-1],
    base64.b64encode(KEY.encode()).decode()[:24], base64.urlsafe_b64encode(KEY.encode()).decode()[:24],
    base64.b64encode(f"me:{KEY}".encode()).decode()[4:28], base64.b64encode(f"m:{KEY}".encode()).decode()[4:28],
]  # fmt: skip


@pytest.mark.parametrize("status", [400, 500])
def test_a_key_in_a_servers_message_is_not_repeated(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    kept: dict[str, JudgeReply] = {}
    with serving(lambda prompt: f"{KEY} says [[A]] \ud800.", lambda prompt, attempt: "echo") as server:
        server.status = status
        for form in FORMS:
            server.message = f"The key {form} is {'x' * 170} no {KEY} {form}\x1b[2J"
            asked = ask(server, retries=0)
            (reason,) = {**asked.refused, **asked.failed}.values()
            assert not any(secret in reason for secret in (form, KEY, "\x1b"))
            assert reason.startswith(f"{status}, The key ")
        server.faults = lambda prompt, attempt: None
        endpoint(server).ask({"a": chat("a")}, kept.__setitem__)
    assert kept["a"].text == "[secret] says [[A]] ?."


def test_the_secrets_of_an_address_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    basic = base64.b64encode(b"me:pass word").decode()
    with serving(faults=lambda prompt, attempt: "echo") as server:
        server.message = f"me:pass%20word, pass word, Basic {basic}, at ?token=T0ken&x=other: T0KEN"
        monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("//", "//me:pass%20word@"))
        own = Endpoint("m", JudgeRule(retries=0))
        asked = own.ask({"a": chat("a")}, lambda key, reply: None)
        scrubber = Scrubber([], "https://h/v1?token=T0ken&x=other")
    assert own.address == server.url
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:secret@host:81/v1?key=secret")
    assert own.address == "https://host:81/v1"
    for url in ("s3cret", "https://[s3cret", "https://host:s3cret/v1", "ftp://s3cret/v1", "https:///s3cret"):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with pytest.raises(ConfigError, match="OPENAI_BASE_URL is not an address") as caught:
            own.ask({"a": chat("a")}, lambda key, reply: None)
        assert "s3cret" not in str(caught.value)
    (reason,) = asked.refused.values()
    assert not any(secret in reason for secret in ("pass", "word", basic[:8]))
    assert not any(secret in scrubber.reason(server.message) for secret in ("T0ken", "T0KEN", "other"))


def test_secrets_are_hidden_from_a_length_on_and_the_longest_first() -> None:
    for length, in_reason, in_reply in ((2, False, False), (3, True, False), (7, True, False), (8, True, True)):
        secret = "zqxjkvbw"[:length]
        scrubber = Scrubber([secret])
        assert scrubber.reason(f"a {secret}.") == f"a {'[secret]' if in_reason else secret}."
        assert scrubber.reply(f"a {secret}.") == f"a {'[secret]' if in_reply else secret}."
    both = Scrubber(["zqxjkvbw", "zqxjkvbw-zqxjkvbw", "w-zqxjkvbw!"])
    assert both.reply("zqxjkvbw-zqxjkvbw") == both.reason("zqxjkvbw-zqxjkvbw") == "[secret]"
    for before in (b"", b"u", b"u:"):  # whole groups of three bytes are hidden, four letters each
        text = base64.b64encode(before + b"zqxjkvbw-zqxjkvbw" + b" more").decode()
        begin, end = 4 * bool(before), (len(before) + 17) // 3 * 4
        assert Scrubber(["zqxjkvbw-zqxjkvbw"]).reply(text) == f"{text[:begin]}[secret]{text[end:]}"
    assert Scrubber([]).reason("x" * 200) == "x" * 200
    assert Scrubber([]).reason("x" * 201) == "x" * 200 + "..."


@pytest.mark.parametrize(
    "url",
    [
        "https://user:s3cret@host/v1", "https://s3cret@host/v1", "https://host/v1?token=s3cret", "https://host?s3cret",
        "https://host/v1#s3cret", "https://host:s3cret/v1", "ftp://s3cret/v1", "s3cret", "https:///s3cret",
        "https://[s3cret/v1", "", "//s3cret@host/v1", "https://host/v1;s3cret", "https://host:0/s3cret",
    ],
)  # fmt: skip
def test_an_address_with_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"`judge\.url`.*OPENAI_BASE_URL") as caught:
        JudgeRule(name="pandalm", url=url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://host/v1", "http://127.0.0.1:8000", "http://[::1]:80/v1/", "https://h-1.x/a/b"]
)
def test_an_address_is_taken(url: str) -> None:
    assert Endpoint("m", JudgeRule(name="pandalm", url=url)).address == url


USAGES = [None, "many", 7, [], {}, {"prompt_tokens": None}, {"prompt_tokens": "7", "completion_tokens": -1},
          {"prompt_tokens": 7.5, "completion_tokens": True}, {"prompt_tokens": 10**30}]  # fmt: skip


@pytest.mark.parametrize("usage", USAGES)
def test_a_reply_counts_whatever_its_usage_is(usage: object, tmp_path: Path) -> None:
    replies = Replies(tmp_path / "replies.jsonl")
    message = {"role": "assistant", "content": "fine"}
    with serving(faults=lambda prompt, attempt: "own") as server:
        server.whole = {"choices": [{"index": 0, "message": message}], "usage": usage, "model": None}
        asked = endpoint(server).ask({"a": chat("a")}, replies.add)
    assert (asked.replies, server.attempts["a"]) == (1, 1)
    line = {"text": "fine", "top_logprobs": [], "model": "", "prompt_tokens": None, "reply_tokens": "many"}
    Journal(tmp_path / "replies.jsonl").append([f"b {json.dumps(line)}"])
    kept = Replies(tmp_path / "replies.jsonl")
    assert replies.known == {"a": JudgeReply("fine")}
    assert kept.known == dict.fromkeys("ab", JudgeReply("fine"))
    assert kept.counts() == {"replies": 2, "tokens_read": 0, "tokens_written": 0}


def own(server: Scripted, request: JudgeRequest, **choice: object) -> JudgeReply | None:
    """Return the reply that a choice is read as."""
    kept: dict[str, JudgeReply] = {}
    server.whole = {"choices": [{"index": 0, **choice}], "model": "m"}
    endpoint(server, seconds=5.0).ask({"a": request}, kept.__setitem__)
    return kept.get("a")


def test_what_is_asked_and_read_of_each_form() -> None:
    """A text, a message, and the arguments of a function; log probabilities are asked for and given in two forms."""
    text, message = JudgeRequest("which", {"max_tokens": 1, "top_logprobs": 5}), chat("which")
    said = {"role": "assistant", "content": None}
    call = {"name": "f", "arguments": '{"best": 1}'}
    with serving(faults=lambda prompt, attempt: "own") as server:
        tops = {"top_logprobs": [{"m": -0.25, "M": -1.5}]}
        assert own(server, text, text="m", logprobs=tops) == JudgeReply("m", ({"m": -0.25, "M": -1.5},), "m")
        assert own(server, text, text="m", logprobs=None) == JudgeReply("m", (), "m")
        assert own(server, message, message=said) == JudgeReply("", (), "m")
        asking = JudgeRequest(message.prompt, {"top_logprobs": 2})
        assert own(server, asking, message={**said, "content": "M"}) == JudgeReply("M", (), "m")
        tool = [{"id": "1", "type": "function", "function": call}]
        assert own(server, message, message={**said, "tool_calls": tool}) == JudgeReply('{"best": 1}', (), "m")
        assert own(server, message, message={**said, "function_call": call}) == JudgeReply('{"best": 1}', (), "m")
        bodies = list(server.bodies)
    kept: dict[str, JudgeReply] = {}
    with serving(lambda prompt: "m") as server:
        endpoint(server).ask({"a": JudgeRequest(message.prompt, {"top_logprobs": 5})}, kept.__setitem__)
    # The server names two tokens with the text "m".
    both = pytest.approx(math.log(math.exp(-0.25) + math.exp(-3.0)))
    assert kept["a"].top_logprobs == ({"m": both, "M": -1.5},)
    assert bodies[0] == {"model": "a-judge", "prompt": "which", "max_tokens": 1, "logprobs": 5}
    assert bodies[2] == {"model": "a-judge", "messages": [*message.prompt], "max_tokens": 5, "temperature": 0}
    assert bodies[3] == {"model": "a-judge", "messages": [*message.prompt], "logprobs": True, "top_logprobs": 2}


def test_the_limits_of_a_reply_are_allowed() -> None:
    top = {"token": "m", "logprob": 0.0009}
    content = {"content": [{**top, "top_logprobs": [top]}]}
    with serving(faults=lambda prompt, attempt: "own") as server:
        found = own(server, chat("a"), message={"role": "assistant", "content": "x" * 2**20}, logprobs=content)
    assert found is not None
    assert (len(found.text), found.top_logprobs) == (2**20, ({"m": 0.0009},))
    assert [token_count(value) for value in (0, 10**9, 10**9 + 1, -1, True)] == [0, 10**9, 0, 0, 0]
    assert (BROKEN, HOPELESS) == (3, 5)


@pytest.mark.parametrize("value", [None, "x", float("nan"), True, 5.0, 0.0012])
def test_a_log_probability_that_is_none_is_no_reply(value: object) -> None:
    tops = [{"token": "m", "logprob": value}]
    content = [{"token": "m", "logprob": -0.1, "top_logprobs": tops}]
    with serving(faults=lambda prompt, attempt: "own") as server:
        message = {"role": "assistant", "content": "m"}
        assert own(server, chat("a"), message=message, logprobs={"content": content}) is None


UNREADABLE = {"large": "16 MiB", "bomb": "compressed", "slow_and_endless": "timed out", "trickle": "timed out"}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_reply_without_a_limit_is_cut_off(fault: str) -> None:
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with serving(faults=lambda prompt, attempt: fault) as server:
        asked = ask(server, retries=0, seconds=1.5)
    assert UNREADABLE[fault] in asked.failed["a"]
    assert time.monotonic() - begun < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB, with the server's own


def test_a_deeply_nested_or_a_very_long_text_is_no_reply() -> None:
    with serving(lambda prompt: "x" * 2**21) as server:
        assert "could not be read" in ask(server, retries=0, seconds=5.0).failed["a"]
        server.faults = lambda prompt, attempt: "own"
        for opening in (b"[", b'{"a":', b'{"choices": ['):
            server.whole = opening * 100_000
            assert "nested deeper" in ask(server, retries=0, seconds=5.0).failed["a"]


def test_a_judge_in_a_folder_here_is_known_by_its_content(byte_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "judge"
    shutil.copytree(byte_model, folder)
    one = Endpoint(str(folder), JudgeRule(url="http://127.0.0.1:1/v1"))
    before = one.identity
    assert before == Endpoint(str(folder), JudgeRule(url="http://127.0.0.1:2/v1")).identity != str(folder)
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert one.identity != before
    assert Endpoint("a-judge", JudgeRule()).identity == "a-judge"
