"""Chat templates: the text that a tokenizer's template writes, and where a response begins and ends in it.

`chat_worker.py` renders them, in a process of its own with limits. A text depends on the template and the messages
alone, not on the day.

A response begins where the template writes its content, and ends with what the template writes after it. Both are read
from the rendering of a probe, `PROBE`, in the place of the response. Training counts, and generation stops, by the same
`End`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from emobench.core.errors import DataError, ModelError

RULES = 3
"""Version of the rules by which a response begins and ends, for the keys of trainings and generated responses."""
PROBE = "Emobench9probe"
SCRIPT = Path(__file__).with_name("chat_worker.py")
SECONDS = 10.0
"""Processor time for a text."""
SPARE, LONGEST = 100_000, 20
"""A rendered text has at most SPARE characters, plus LONGEST times as many as its messages."""
KEPT = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Environment variables that the worker gets. None of them is a key."""

Message = Mapping[str, str]
Chat = tuple[Sequence[Message], bool]
"""Messages, and whether the template asks for a response to them."""


class ChatRefusedError(DataError):
    """A template refuses these messages; it may take others."""


class End(NamedTuple):
    """What ends a response."""

    ids: tuple[int, ...]
    """Tokens, each of which ends it: EOS, and the token that the template writes after a response."""
    text: str = ""
    """Ordinary text that ends it, or that stands before the token that does; empty if there is none."""
    is_written: bool = True
    """Whether the template writes one of them after a response."""
    by_text: bool = False
    """Whether the template writes `text` alone, without a token that ends a response."""

    def is_in(self, tokenizer: Any, ids: Sequence[int]) -> bool:
        """Return whether tokens hold it."""
        return self.text in tokenizer.decode(ids) if self.by_text else not {*self.ids}.isdisjoint(ids)

    def cut(self, text: str) -> tuple[str, bool]:
        """Return a generated text without what ends it, and whether ordinary text ended it."""
        text = text.strip() if self.text.strip() else text.lstrip()
        if not self.by_text:
            return text.removesuffix(self.text).strip(), False
        place = text.find(self.text)
        return (text.strip(), False) if place < 0 else (text[:place].strip(), True)


class Frame(NamedTuple):
    """What a template writes around a response."""

    prompt: str
    """All before it: what a model is asked with."""
    after: str
    """All after it."""


class _Worker:
    """The process that renders, started at first use, and again after it ended or this process was forked."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer; {"error": "ended", ...} if the process did not survive the request."""
        with self._lock:
            if self._owner != os.getpid() or self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None
            assert stdout is not None
            line = b""
            try:
                stdin.write(json.dumps(request).encode() + b"\n")
                stdin.flush()
                line = stdout.readline()
            except BrokenPipeError:
                pass
            except BaseException:  # such as Ctrl-C: an answer that was not read would be the next one's
                self.close()
                raise
            if line.endswith(b"\n"):
                return json.loads(line)
            code = self.close()
            return {"error": "ended", "message": "time" if code == -signal.SIGPROF else f"exit code {code}"}

    def _start(self) -> None:
        self.close()
        environment = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
        environment |= {name: os.environ[name] for name in KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process
        )
        self._owner = os.getpid()

    def close(self) -> int:
        """End the process, if this process started it, and return its exit code."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return 0
        with suppress(OSError):  # of a request that was not read
            process.communicate()
        return process.wait()


_WORKER = _Worker()
atexit.register(_WORKER.close)


def render_chat(tokenizer: Any, messages: Sequence[Message], *, asks: bool) -> str:
    """Return the text of a chat by the tokenizer's template; `asks`: with the beginning of a response.

    Raises what `render_chats` raises.
    """
    (text,) = render_chats(tokenizer, [(messages, asks)])
    return text


def render_chats(tokenizer: Any, chats: Sequence[Chat], where: str = "") -> list[str]:
    """Return the text of each chat.

    Raises ChatRefusedError, which begins with `where`, for messages that the template refuses, and ModelError for a
    template that is not valid, takes too long or writes too much.
    """
    fixed: dict[str, Any] = {"tools": None, "documents": None}
    for name, value in tokenizer.special_tokens_map.items():
        fixed[name] = list(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    values, longest = [], 0
    for messages, asks in chats:
        plain = list(map(dict, messages))
        values.append({**fixed, "messages": plain, "add_generation_prompt": asks})
        longest = max(longest, SPARE + LONGEST * len(json.dumps(plain)))
    try:
        template = tokenizer.get_chat_template()
    except ValueError:
        raise ModelError(
            "The tokenizer has no chat template, or several and no default. Take the Alpaca prompt, or a chat model."
        ) from None
    answer = _WORKER.ask({"template": template, "values": values, "longest": longest, "seconds": SECONDS})
    if "texts" in answer:
        return answer["texts"]
    kind, message = answer["error"], answer["message"]
    if kind == "refused":
        roles = ", ".join(str(one.get("role")) for one in chats[-1][0])
        raise _refused(where, f"the chat template refuses the conversation ({message}); its roles are {roles}.")
    problems = {
        "invalid": f"is not valid ({message})",
        "large": f"writes more than {longest:,} characters, or needs too much memory",
        "ended": f"could not be rendered within {SECONDS:.0f} s (its process ended: {message})",
    }
    raise ModelError(f"The chat template of the tokenizer {problems[kind]}. Give the tokenizer another template.")


def _refused(where: str, problem: str) -> ChatRefusedError:
    return ChatRefusedError(f"{where}: {problem}" if where else problem)


def continued_chat(tokenizer: Any, messages: Sequence[Message]) -> str:
    """Return the text of a chat up to the end of its last message's content, which a model continues."""
    tag = f"{PROBE} "
    *before, last = messages
    text = render_chat(tokenizer, [*before, {**last, "content": last["content"] + tag}], asks=False)
    place = text.rfind(PROBE)
    if place < 0:
        raise ChatRefusedError("the chat template does not write the last message, which is to be continued.")
    # A template that strips contents took the space of the tag, and would take the spaces before it.
    return text[:place] if text.startswith(tag, place) else text[:place].rstrip()


def frame_of(tokenizer: Any, asked: Sequence[Message]) -> Frame:
    """Return what the template writes around a response to `asked`. Raises what `render_chats` and `frame_in` raise."""
    opened, answered = render_chats(tokenizer, framing_chats(asked))
    return frame_in(opened, answered)


def framing_chats(asked: Sequence[Message]) -> list[Chat]:
    """Return the two chats from whose texts `frame_in` reads the frame of a response."""
    return [(asked, True), ([*asked, {"role": "assistant", "content": PROBE}], False)]


def frame_in(opened: str, answered: str, where: str = "") -> Frame:
    """Return what a template writes around a response, from its texts of `framing_chats`.

    A header of the response that the template does not write when it asks for one belongs to the prompt. Raises
    ChatRefusedError for a template that does not write the response, or nothing before it.
    """
    place = answered.rfind(PROBE)
    if place < 0:
        raise _refused(where, "the chat template does not write the content of a response.")
    header = answered[len(opened) : place] if answered.startswith(opened) else ""
    # A space before the response is a part of its first token.
    prompt = opened + header.rstrip(" ") if header.strip() else opened
    if not prompt:
        raise _refused(where, "the chat template writes nothing before a response, so that a model is asked nothing.")
    return Frame(prompt, answered[place + len(PROBE) :])


def text_ids(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a rendered text, which has its own special tokens."""
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def end_of(tokenizer: Any, after: str) -> End:
    """Return what ends a response, from what the template writes after it.

    A token of the tokenizer's added ones (special or not) ends a response, and so does one that spells all of the text.
    Otherwise the text does.
    """
    return _end_of(tokenizer, after, len(tokenizer))


@lru_cache(maxsize=256)
def _end_of(tokenizer: Any, after: str, _size: int) -> End:
    """Return what `end_of` does, computed once, as long as the tokenizer has as many tokens."""
    eos = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    added = {*tokenizer.get_added_vocab().values(), *tokenizer.all_special_ids}
    ids = text_ids(tokenizer, after)
    for token in ids:
        spelled = tokenizer.decode([token]).strip()
        if token in added and spelled:
            return End(tuple(dict.fromkeys((*eos, token))), after.partition(spelled)[0].strip())
    text = after.strip() or after
    ends = dict.fromkeys(eos)
    for token in ids:
        if text.strip() and tokenizer.decode([token]).strip() == text:
            ends[token] = None
    return End(tuple(ends), text, is_written=bool(after), by_text=bool(after))
