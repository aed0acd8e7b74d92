"""Asks an OpenAI-compatible endpoint many requests: at once, within a rate, with retries, each reply kept as it comes.

The package openai speaks the protocol. It retries cut connections, time-outs, 408, 409, 429 and 5xx with growing
pauses, or with the one that Retry-After names. It does not retry broken replies, such as broken JSON.

The key is read from OPENAI_API_KEY by the package, and the address from OPENAI_BASE_URL unless it is given. Neither the
key nor a header is written or shown anywhere: all that a server says passes a `Scrubber`. A redirect is not followed,
because it would send prompts to somebody else. A reply has a limit of size, of time and of depth (see `_bounded`).
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

import numpy as np

from emobench.core.errors import ConfigError, ModelError, RunError
from emobench.core.reading import expand_home, is_folder, require_shallow
from emobench.core.settings import content_hash
from emobench.kinds.instruct.judging.judge import (
    Asked,
    JudgeReply,
    JudgeRequest,
    KeepReply,
    Progress,
    Requests,
    token_count,
)
from emobench.kinds.instruct.rules import JudgeRule, public_address
from emobench.models.device import LoadOptions
from emobench.models.model import Model

OPENAI = "https://api.openai.com/v1"
BROKEN = 3
"""How often a request is sent again whose reply cannot be read."""
REFUSED = {400, 413, 422}
LARGEST = 2**24
"""Bytes of the body of a reply."""
LONGEST = 2**20
"""Characters of the text of a reply. No judge writes as many."""
LARGEST_LOG_PROB = 1e-3
"""More than 0 by rounding alone."""
SECRETS = ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
"""Variables that the package openai sends."""
HIDDEN = "[secret]"
SHORTEST, SHORTEST_IN_REPLY = 3, 8
"""Secrets with fewer characters are not looked for: such words occur in any text."""
LONGEST_REASON = 200
HOPELESS = 5
"""Requests in a row that fail after all retries, with no reply between them: the endpoint is taken to be down."""


@dataclass(frozen=True)
class Endpoint:
    """An address that answers; the rule says how fast it may be asked."""

    model: str
    rule: JudgeRule

    @property
    def address(self) -> str:
        """Where requests go, without a user, a password or a query. Raises ConfigError for one that is none."""
        address = public_address(self._url)
        if not address:
            raise ConfigError("OPENAI_BASE_URL is not an address; expected one such as http://localhost:8000/v1.")
        return address

    @property
    def _url(self) -> str:
        return self.rule.url or os.environ.get("OPENAI_BASE_URL") or OPENAI

    @cached_property
    def scrubber(self) -> Scrubber:
        """Removes the key, and the secrets of the address, from a server's texts."""
        return Scrubber([os.environ.get(name, "") for name in SECRETS], self._url)

    @property
    def identity(self) -> str:
        """The name of the model, which is all that is known behind an endpoint; of a folder here, its content."""
        if is_folder(expand_home(self.model)):
            return content_hash(Model(self.model, LoadOptions(offline=True)).identity)
        return self.model

    def check_key(self) -> str:
        """Return the key, "none" for an address of one's own. Raises ModelError without one for OpenAI's."""
        key = os.environ.get("OPENAI_API_KEY")
        if key:
            return key
        if self.address == OPENAI:
            raise ModelError(
                "Judging with OpenAI's models needs a key. Set OPENAI_API_KEY, or --set judge.url=URL for another "
                "endpoint, or --set judge.backend=local."
            )
        return "none"

    def check(self, request: JudgeRequest) -> None:
        """Refuse nothing: only the server knows."""

    def ask(
        self,
        requests: Requests,
        keep: KeepReply,
        progress: Progress = lambda done, total: None,
    ) -> Asked:
        """Send the requests, and call `keep` with each reply as soon as it is there.

        At most len(requests) * (1 + retries) * (1 + BROKEN) attempts are made. Raises ModelError where no request can
        succeed: nobody answers at the address, the key is wrong, the model is unknown there.
        """
        asking = _Asking(self, keep, progress).all(requests)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(asking)
        with ThreadPoolExecutor(1) as pool:  # a loop runs in this thread, as in a notebook
            return pool.submit(asyncio.run, asking).result()


@dataclass
class _Asking:
    endpoint: Endpoint
    keep: KeepReply
    progress: Progress
    asked: Asked = field(default_factory=Asked)
    in_a_row: int = 0
    """Failed requests since the last reply."""
    turn: float = 0.0
    """When the next request may be sent."""

    async def all(self, requests: Requests) -> Asked:
        import openai

        rule = self.endpoint.rule
        async with openai.AsyncOpenAI(
            api_key=self.endpoint.check_key(),
            base_url=rule.url,
            max_retries=rule.retries,
            http_client=_with_deadline(rule.seconds),
        ) as client:
            await self._check(client)
            waiting = iter(requests.items())

            async def work() -> None:
                # One iterator for all workers: a request is taken when its turn comes, so that a stop leaves the rest.
                for key, request in waiting:
                    await self._one(client, key, request)
                    done = self.asked.replies + len(self.asked.refused) + len(self.asked.failed)
                    self.progress(done, len(requests))

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(rule.concurrency):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                error: BaseException = errors
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                raise error from None
        return self.asked

    async def _check(self, client: Any) -> None:
        """Ask for the list of models, which costs nothing; an endpoint without one is taken as it is."""
        import openai

        try:
            await client.with_options(max_retries=min(1, self.endpoint.rule.retries)).models.list()
        except openai.APIConnectionError:
            raise self._useless("does not answer. Start the server, or name another address") from None
        except Exception as error:  # a list of another form, or none
            self._require_key(error)

    def _require_key(self, error: Any) -> None:
        if getattr(error, "status_code", None) in (401, 403):
            raise self._useless(f"refuses the key ({error.status_code}). Set OPENAI_API_KEY, or name another")

    def _useless(self, why: str) -> ModelError:
        return ModelError(f"{self.endpoint.address} {why}: --set judge.url=URL, or OPENAI_BASE_URL.")

    async def _one(self, client: Any, key: str, request: JudgeRequest) -> None:
        import openai

        scrubber = self.endpoint.scrubber
        for attempt in range(1 + BROKEN):
            if self.endpoint.rule.per_minute:
                now = time.monotonic()
                begin = max(now, self.turn)
                self.turn = begin + 60 / self.endpoint.rule.per_minute
                await asyncio.sleep(begin - now)
            try:
                reply = await self._reply(client, request, scrubber)
            except openai.OpenAIError as error:
                self._require_key(error)
                status = getattr(error, "status_code", None) or 0
                if status == 404:
                    raise self._useless(
                        f"has no model {self.endpoint.model}, or is not an OpenAI-compatible endpoint, whose address "
                        "usually ends in /v1. Name another: --set judge.model=MODEL"
                    ) from None
                if 300 <= status < 400:
                    raise self._useless(
                        f"redirects requests to another address ({status}), and prompts are sent only to the address "
                        "that you named. Name the one that answers"
                    ) from None
                if status in REFUSED:
                    self.asked.refused[key] = _reason(error, scrubber)
                else:
                    self._give_up(key, _reason(error, scrubber))
                return
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                # Broken JSON, or JSON of another form. The next attempt may be whole.
                if attempt == BROKEN:
                    why = str(error) if isinstance(error, UnreadableError) else type(error).__name__
                    self._give_up(key, f"{1 + BROKEN} replies could not be read ({why})")
                continue
            self.in_a_row = 0
            self.keep(key, reply)
            self.asked.replies += 1
            return

    async def _reply(self, client: Any, request: JudgeRequest, scrubber: Scrubber) -> JudgeReply:
        options = {"model": self.endpoint.model, **request.options}
        tops = options.pop("top_logprobs", None)
        if isinstance(request.prompt, str):
            if tops is not None:
                options["logprobs"] = tops
            return _read(await client.completions.create(prompt=request.prompt, **options), scrubber)
        if tops is not None:
            options |= {"logprobs": True, "top_logprobs": tops}
        return _read(await client.chat.completions.create(messages=list(request.prompt), **options), scrubber)

    def _give_up(self, key: str, reason: str) -> None:
        self.asked.failed[key] = reason
        self.in_a_row += 1
        if self.in_a_row >= HOPELESS:
            raise RunError(
                f"{self.endpoint.address} gave no reply to {HOPELESS} requests in a row: {reason}. The "
                f"{self.asked.replies} replies before them are kept. Give the same command again when it answers."
            )


class UnreadableError(ValueError):
    """A reply is larger or deeper than any reply of a judge."""


def _with_deadline(seconds: float) -> Any:
    """Return an HTTP client whose requests end after a time, whose replies are bounded, and that follows no redirect.

    The library's own limits are between two bytes: a reply that trickles would never reach them.
    """
    import openai

    base = openai.DefaultAsyncHttpxClient
    # httpx, or httpx2 since openai 3: the package retries the time-out of its own library.
    module = next(one.__module__ for one in base.__mro__ if one.__name__ == "AsyncClient")
    library: Any = importlib.import_module(module.partition(".")[0])

    class WithDeadline(base):
        async def send(self, request: Any, **options: Any) -> Any:
            request.headers["Accept-Encoding"] = "identity"
            options |= {"stream": True, "follow_redirects": False}
            try:
                async with asyncio.timeout(seconds):
                    response = await super().send(request, **options)
                    try:
                        body = await _bounded(response)
                    finally:
                        await response.aclose()
            except TimeoutError:
                raise library.ReadTimeout("no whole reply in time", request=request) from None
            extensions = {}
            if "http_version" in response.extensions:
                extensions["http_version"] = response.extensions["http_version"]
            return library.Response(
                response.status_code, headers=response.headers, content=body, request=request, extensions=extensions
            )

    return WithDeadline(timeout=seconds, follow_redirects=False)


async def _bounded(response: Any) -> bytes:
    """Return the body of a reply. Raises UnreadableError for a large, packed or deeply nested one.

    Nothing is unpacked: a small packed body may be a large one, and no packing was asked for.
    """
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise UnreadableError("compressed, which was not asked for")
    parts = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > LARGEST:
            raise UnreadableError(f"more than {LARGEST >> 20} MiB")
        parts.append(part)
    body = b"".join(parts)
    try:
        require_shallow(body.decode("utf-8", "replace"))
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    return body


def _read(completion: Any, scrubber: Scrubber) -> JudgeReply:
    """Return a reply of either form; raises ValueError, TypeError, LookupError or AttributeError for anything else."""
    choice = completion.choices[0]
    message = getattr(choice, "message", None)
    logprobs = getattr(choice, "logprobs", None)
    tops: list[list[tuple[str, Any]]] = []
    if message is None:
        text = choice.text
        for top in getattr(logprobs, "top_logprobs", None) or ():
            tops.append(list(dict(top).items()))
    else:
        calls = getattr(message, "tool_calls", None)
        call = calls[0].function if calls else getattr(message, "function_call", None)
        text = message.content if call is None else call.arguments
        for token in getattr(logprobs, "content", None) or ():
            tops.append([(top.token, top.logprob) for top in token.top_logprobs])
    if text is not None and not isinstance(text, str):
        raise TypeError("the text of a reply is no string")
    if text and len(text) > LONGEST:
        raise ValueError("the text of a reply is too long")
    usage = getattr(completion, "usage", None)
    model = getattr(completion, "model", None)
    name = scrubber.reason(model) if isinstance(model, str) else ""
    likeliest = tuple(_by_text(top, scrubber) for top in tops)
    read = getattr(usage, "prompt_tokens", None)
    written = getattr(usage, "completion_tokens", None)
    return JudgeReply(scrubber.reply(text or ""), likeliest, name, token_count(read), token_count(written))


def _by_text(top: Iterable[tuple[str, Any]], scrubber: Scrubber) -> dict[str, float]:
    """Return the log probability of each text. The probabilities of several tokens with one text add up."""
    likeliest = {}
    for token, value in top:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value <= LARGEST_LOG_PROB:
            raise TypeError("a log probability is no number")
        text = scrubber.reply(token)
        likeliest[text] = float(np.logaddexp(likeliest.get(text, -np.inf), value))
    return likeliest


def _reason(error: Any, scrubber: Scrubber) -> str:
    body = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    text = str(getattr(error, "message", "") or type(error).__name__)
    if isinstance(error.__cause__, UnreadableError):  # openai 1 and 2 take it for a fault of the connection
        text = f"the reply could not be read ({error.__cause__})"
    elif isinstance(body, dict) and body.get("message"):
        text = str(body["message"])
    reason = scrubber.reason(text)
    return reason if status is None else f"{status}, {reason}"


class Scrubber:
    """Removes secrets from texts, in all forms in which a server may echo them."""

    def __init__(self, keys: Iterable[str], url: str = "") -> None:
        """Take keys, and the user, the password and the query of an address."""
        forms = set()
        for secret in (*keys, *_secrets_of(url)):
            forms.update(_forms(secret))
        longest_first = sorted(forms, key=len, reverse=True)  # of two that begin alike the longer one counts
        self._patterns = {}
        for shortest in (SHORTEST, SHORTEST_IN_REPLY):
            escaped = "|".join(re.escape(form) for form in longest_first if len(form) >= shortest)
            self._patterns[shortest] = re.compile(escaped or r"(?!)", re.IGNORECASE)

    def _hidden(self, text: str, shortest: int) -> str:
        return self._patterns[shortest].sub(HIDDEN, text).encode("utf-8", "replace").decode()

    def reply(self, text: str) -> str:
        """Return a reply without long secrets, and with halves of surrogate pairs replaced."""
        return self._hidden(text, SHORTEST_IN_REPLY)

    def reason(self, text: str) -> str:
        """Return a server's message as one line, without secrets and control characters, cut to its beginning."""
        text = self._hidden(text, SHORTEST)
        for sign in set(text):
            if not sign.isprintable():
                text = text.replace(sign, " ")
        text = " ".join(text.split())
        return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def _secrets_of(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    if "@" in parts.netloc:
        userinfo = parts.netloc.rpartition("@")[0]
        user, _, password = userinfo.partition(":")
        yield from (userinfo, unquote(userinfo), user, password)
    for part in (parts.query, parts.fragment):
        yield part
        for pair in part.split("&"):
            yield from (pair, pair.partition("=")[2])


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, quoted, escaped, in hexadecimal digits, and in base64, also as `user:secret`."""
    for text in {secret, unquote(secret)} - {""}:
        data = text.encode("utf-8", "replace")
        yield from (text, quote(text, safe=""), quote(text), quote_plus(text), data.hex())
        yield text.encode("unicode_escape").decode().replace('"', '\\"')
        # Behind a text of another length, base64 has other signs: those of whole groups of three bytes are the same.
        for shift in range(3):
            padded = b"\0" * shift + data
            whole = padded[: len(padded) // 3 * 3]
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(whole).decode()[4 if shift else 0 :]
