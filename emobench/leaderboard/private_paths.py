"""An entry is published, and where somebody's files lie is nobody's business: of paths only the last part stays."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from emobench.core.reading import path_exists

FOLDERS = ("--data-dir", "--runs", "--leaderboard")
"""Options whose value is where something lies: it decides nothing, and reads DIR where the command is published."""
FOLDER = "DIR"

_END = r"[^\s'\"(),;=\[\]{}]*"
# A folder before it: the home of somebody, one relative to here, or two of an absolute path ("[/INST]" is no path).
_PATH = re.compile(rf"(?<![\w/:<.~-])(?:(?:~[\w.-]*|\.{{1,2}})/|/[^\s/'\"(),;=\[\]{{}}]+/){_END}")
_USER = re.compile(r"(\w[\w+.-]*://)[^\s/'\"]*@")
_QUERY = re.compile(r"(\w[\w+.-]*://[^\s?#'\"]*)[?#][^\s'\"]*")
_URL = re.compile(r"""(\burl["']?\s*:\s*)("[^"]*"|'[^']*'|[^,}\n]*)""")
"""The field of a mapping, such as `judge={url: http://host/v1}`."""
_DRIVE = re.compile(r"[A-Za-z]:/")
_PYTHON = re.compile(r"[^()+*=,'\"]*/(?=[^/()+*=,'\"]+\.py:)")


def without_paths(text: str) -> str:
    """Return text with `./name` for each path of a file or a folder that is in it.

    >>> without_paths("emo(cost=/home/me/models/gpt2), of ~/losses/mine.py:Loss and EleutherAI/gpt-neo-1.3B")
    'emo(cost=./gpt2), of ./mine.py:Loss and EleutherAI/gpt-neo-1.3B'
    """
    return _PATH.sub(lambda found: f"./{PurePath(found[0]).name}", without_secrets(text))


def without_secrets(text: str) -> str:
    """Return text without the user, the password, the query and the fragment of each address in it.

    >>> without_secrets("see https://me:pw@host:81/v1?token=T and ftp://host/file#part.")
    'see https://host:81/v1 and ftp://host/file'
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1", text))


def published_value(value: str) -> str:
    """Return an option's value or a parameter: a path as `./name`, a hub id or a word as it is."""
    value = _PYTHON.sub("./", without_secrets(value))
    is_path = value.startswith(("/", "~/", "./", "../")) or ("/" in value and path_exists(Path(value)))
    return f"./{PurePath(value).name}" if is_path and ".py:" not in value else without_paths(value)


def distinct_name(text: str, slashes: int = 1) -> str:
    """Return an id or a word as it is, and of a path the last part with a digest of the whole path.

    The digest keeps paths with the same last part apart. A text with more than `slashes` is a path. Only the text
    decides, and not the files of this machine, so that every machine gives the same name.

    >>> distinct_name("EleutherAI/pythia-14m"), distinct_name("/home/me/runs/1/adapter/")
    ('EleutherAI/pythia-14m', 'adapter#4a0f744c')
    """
    shown = without_secrets(text)
    path = posixpath.normpath(re.sub(r"[/\\]+", "/", shown))
    is_path = "\\" in shown or shown.startswith(("/", "~", ".")) or _DRIVE.match(shown) is not None
    if not is_path and path.count("/") <= slashes:
        return path
    digest = hashlib.sha256(path.encode(errors="replace")).hexdigest()
    return f"{posixpath.basename(path)}#{digest[:8]}"


def published_command(words: Sequence[str]) -> str:
    """Return a command with its options and settings, without the places of this machine."""
    shown, option = [], ""
    for word in words:
        begin, value, following = "", word, word
        if word.startswith("--") and "=" in word and option not in ("--set", *FOLDERS):
            option, _, value = word.partition("=")
            begin, following = f"{option}=", ""
        if option in FOLDERS:
            shown.append(begin + FOLDER)
        elif option == "--set":
            shown.append(begin + _setting(value))
        else:
            shown.append(begin + published_value(value))
        option = following
    return shlex.join(shown)


def _setting(text: str) -> str:
    """Return KEY=VALUE of --set without the address of an endpoint: `rerun` takes one of its own."""
    key, equals, value = text.partition("=")
    if key.strip().rpartition(".")[2] == "url":
        return f"{key.strip()}=URL"
    shown = f"{key}={published_value(value)}" if equals else published_value(text)
    return _URL.sub(r"\1URL", shown)


def published(value: Any, of_text: Callable[[str], str] = without_paths) -> Any:
    """Return plain data with the paths in its texts reduced to their last part."""
    if isinstance(value, str):
        return of_text(value)
    if isinstance(value, Mapping):
        return {key: published(inner, of_text) for key, inner in value.items()}
    return [published(inner, of_text) for inner in value] if isinstance(value, (list, tuple)) else value
