"""The list of all files of a shared board with their digests, in the format of sha256sum, and its signature.

The list is written last: a file that is not in it was left by a push that was stopped, and is not read. So a board is
always as one push or another left it. `sha256sum -c digests.txt` checks a copy without emobench.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from emobench.core.errors import ConfigError, DataError
from emobench.core.settings import file_sha256
from emobench.leaderboard.pack import LARGEST as LARGEST_PACKED
from emobench.leaderboard.pack import LEFT_OUT
from emobench.leaderboard.run_files import PACKED, SUFFIX
from emobench.leaderboard.store import LARGEST as LARGEST_ENTRY

DIGESTS = "digests.txt"
SIGNATURE = f"{DIGESTS}.sig"
NAMESPACE = "emobench"
"""What a signature is for, in the sense of `ssh-keygen -Y`: one of another purpose does not count."""
LONGEST = 64 * 2**20
"""Bytes of the largest list of digests."""
LARGEST_SIGNATURE = 16 * 1024
_NAMES = {
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}-v[1-9][0-9]{0,8}/[0-9a-f]{12}\.json"): LARGEST_ENTRY,
    re.compile(
        rf"{PACKED}/(?:[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{{0,199}}/){{1,8}}[^./\\\x00-\x1f\x7f]"
        rf"[^/\\\x00-\x1f\x7f]{{0,199}}{re.escape(SUFFIX)}"
    ): LARGEST_PACKED,
    re.compile(re.escape(f"{PACKED}/{LEFT_OUT}")): LARGEST_ENTRY,
}
"""Names of the files of a shared board, within its folder, with the bytes of the largest."""
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def largest(name: str) -> int | None:
    """Return the bytes that a file of this name may have; None for a name that no file of a shared board has."""
    return next((most for pattern, most in _NAMES.items() if pattern.fullmatch(name)), None)


def require_shareable(root: Path, names: Iterable[str]) -> None:
    """Raise DataError for a file that nobody could pull, by its name or its size."""
    for name in names:
        most, size = largest(name), (root / name).stat().st_size
        if most is None or size > most:
            why = "a name that no shared board has" if most is None else f"{size:,} bytes, and {most:,} are the most"
            raise DataError(f"{name} has {why}. Nothing was written. Leave its entry out of this board.")


def list_digests(root: Path, names: Iterable[str]) -> str:
    """Return the list of files in a folder."""
    return "".join(f"{file_sha256(root / name)}  {name}\n" for name in sorted(names))


def read_digests(content: bytes, where: str) -> dict[str, str]:
    """Return the sha256 of each file by its name. Raises DataError for a list that no push wrote."""
    digests: dict[str, str] = {}
    try:
        lines = content.decode().removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError:
        lines = ["bytes that are not UTF-8"]
    for number, line in enumerate(lines, 1):
        fields = _LINE.fullmatch(line)
        if fields is None or largest(fields[2]) is None or fields[2] in digests:
            raise DataError(
                f"{where}: line {number} of {DIGESTS} is {line!r:.120}; expected a sha256, two spaces, and the name of "
                "a file of a board, each name once. Nothing was written. Restore the list there from an earlier state."
            )
        digests[fields[2]] = fields[1]
    return digests


def listed_content(content: bytes, sha256: str, name: str, where: str) -> bytes:
    """Return the content of a file that has the listed digest; raises DataError where it is another one.

    To the list of files that are left out, which alone is ever written again, lines are added at the end: those of a
    push that was stopped are not returned.
    """
    lines = content.splitlines(keepends=True) if name == f"{PACKED}/{LEFT_OUT}" else [content]
    hashed, size = hashlib.sha256(), 0
    for line in lines:
        hashed.update(line)
        size += len(line)
        if hashed.hexdigest() == sha256:
            return content[:size]
    raise DataError(f"{where}: {name} is not the file that {DIGESTS} lists. Nothing was written. Restore it there.")


def sign(file: Path, key: Path) -> Path:
    """Sign a file with a private key of ssh, and return the detached signature. Raises ConfigError."""
    signature = file.with_name(f"{file.name}.sig")
    signature.unlink(missing_ok=True)
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(file))
    if done.returncode or not signature.is_file():
        raise ConfigError(f"--sign-key {key}: ssh-keygen could not sign ({_last(done)}). Give a private key of ssh.")
    return signature


def check_signature(digests: bytes, signature: bytes | None, allowed: Path, where: str) -> None:
    """Raise DataError unless a list is signed by a key in a file of allowed signers, as of ssh-keygen(1)."""
    if not allowed.is_file():
        raise ConfigError(f"--allowed-signers {allowed}: there is no such file; expected lines such as `NAME KEY`.")
    if signature is None:
        raise DataError(f"{where} is not signed, and nothing was written. Sign it: push with --sign-key FILE.")
    with tempfile.TemporaryDirectory(prefix="emobench.") as folder:
        file = Path(folder) / SIGNATURE
        file.write_bytes(signature)
        listed = _ssh_keygen("find-principals", "-f", str(allowed), "-s", str(file))
        signers = re.split(r"[,\n]", listed.stdout.decode(errors="replace").strip())
        given = ("-f", str(allowed), "-n", NAMESPACE, "-s", str(file))
        if not any(not _ssh_keygen("verify", "-I", one, *given, stdin=digests).returncode for one in signers):
            raise DataError(
                f"{where}: {DIGESTS} is not signed by a key in {allowed}, or was altered since ({_last(listed)}). "
                "Nothing was written. Ask who pushed last."
            )


def _ssh_keygen(action: str, *given: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", "-Y", action, *given], input=stdin, capture_output=True, check=False)
    except FileNotFoundError:
        raise ConfigError("Signatures need ssh-keygen, which is not here: apt install openssh-client.") from None


def _last(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").split("\n")
    return next((line.strip().rstrip(".") for line in reversed(lines) if line.strip()), "no reason given")
