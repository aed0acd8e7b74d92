"""Addresses of endpoints, and secrets: what comes from outside is kept and shown without them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote, urlsplit

from emobench.core.errors import ConfigError

HIDDEN = "[secret]"
SHORTEST, SHORTEST_IN_REPLY = 3, 8
"""Secrets with fewer characters are not looked for: such words occur in any text."""
LONGEST_REASON = 200


def check_address(url: str, setting: str) -> None:
    """Raise ConfigError for an address that is none, or that holds a secret. The message does not repeat it."""
    if problem := _problem(url):
        raise ConfigError(
            f"`{setting}` {problem}; expected an address such as http://localhost:8000/v1. A key belongs into "
            "the variable OPENAI_API_KEY, and an address with a user, a password or a query into OPENAI_BASE_URL: "
            "settings are written to files and published."
        )


def _problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not an address"
    if not valid:
        return "is not an address"
    if "@" in parts.netloc:
        return "holds a user or a password"
    if parts.query or parts.fragment or parts.path.count(";"):
        return "holds a query or a fragment"
    return ""


def shown_address(url: str) -> str:
    """Return an address without a user, a password or a query. Raises ConfigError for one that is none."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("OPENAI_BASE_URL is not an address; expected one such as http://localhost:8000/v1.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"


class Scrubber:
    """Removes secrets from texts, in all forms in which a server may echo them."""

    def __init__(self, keys: Iterable[str], url: str = "") -> None:
        """Take keys, and the user, the password and the query of an address."""
        found = sorted({form for secret in (*keys, *_secrets_of(url)) for form in _forms(secret)}, key=len)[::-1]
        self._long = _any_of(form for form in found if len(form) >= SHORTEST_IN_REPLY)
        self._all = _any_of(form for form in found if len(form) >= SHORTEST)

    def reply(self, text: str) -> str:
        """Return a reply without long secrets, and with halves of surrogate pairs replaced."""
        return self._long.sub(HIDDEN, text).encode("utf-8", "replace").decode()

    def reason(self, text: str) -> str:
        """Return a server's message as one line, without secrets and control characters, cut to its beginning."""
        text = self._all.sub(HIDDEN, text).encode("utf-8", "replace").decode()
        text = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
        return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def _any_of(forms: Iterable[str]) -> re.Pattern[str]:
    escaped = [re.escape(form) for form in forms]
    return re.compile("|".join(escaped) or r"(?!)", re.IGNORECASE)


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
