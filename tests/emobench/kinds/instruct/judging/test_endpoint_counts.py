"""How many requests an endpoint gets, what is told of them, and which statuses stop everything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emobench.core.errors import ModelError, RunError
from emobench.kinds.instruct.judging.endpoint import Endpoint
from emobench.kinds.instruct.judging.judge import JudgeRequest

sys.path.insert(0, str(Path(__file__).parent))
from endpoints import Scripted, serving


def endpoint(server: Scripted) -> Endpoint:
    return Endpoint(model="a-judge", url=server.url, retries=0, concurrency=1)


def requests(*prompts: str) -> dict[str, JudgeRequest]:
    return {prompt: JudgeRequest(prompt, {"max_tokens": 5}) for prompt in prompts}


def test_progress_counts_replies_refusals_and_failures() -> None:
    told: list[tuple[int, int]] = []
    faults = {"b": "too_long", "c": "server_error", "d": "broken_json"}
    with serving(faults=lambda prompt, attempt: faults.get(prompt)) as server:
        asked = endpoint(server).ask(requests(*"abcd"), lambda *kept: None, lambda *done: told.append(done))
    assert (asked.replies, set(asked.refused), set(asked.failed), asked.final) == (1, {"b"}, {"c", "d"}, False)
    assert asked.failed["d"].startswith("4 replies could not be read")
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_five_failures_in_a_row_stop_and_a_reply_between_them_does_not() -> None:
    with serving(faults=lambda prompt, attempt: "server_error") as server:
        with pytest.raises(RunError, match="no reply to 5 requests in a row"):
            endpoint(server).ask(requests(*"abcdefgh"), lambda *kept: None)
        assert list(server.attempts) == list("abcde")
    with serving(faults=lambda prompt, attempt: None if prompt == "e" else "server_error") as server:
        asked = endpoint(server).ask(requests(*"abcdefghi"), lambda *kept: None)
    assert (asked.replies, set(asked.failed)) == (1, set("abcdfghi"))


@pytest.mark.parametrize(("status", "stops"), [(300, True), (399, True), (400, False), (500, False)])
def test_a_status_of_a_redirect_stops_all(status: int, stops: bool) -> None:
    with serving(faults=lambda prompt, attempt: "echo") as server:
        server.status = status
        if stops:
            with pytest.raises(ModelError, match=rf"redirects requests to another address \({status}\)"):
                endpoint(server).ask(requests("a"), lambda *kept: None)
        else:
            endpoint(server).ask(requests("a"), lambda *kept: None)
