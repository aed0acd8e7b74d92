"""A shared board in a branch of a git repository. Nothing is checked out: no hook, filter or link of it has effect."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from emobench.core.errors import ConfigError, DataError
from emobench.exchange.sharing.folder import too_large

DEFAULT_BRANCH = "main"
"""Of a repository whose own default branch has no commit, and others have."""
PATIENCE = 120.0
"""Seconds in which a server says which branches it has."""
LONGEST = 1800.0
"""Seconds for any other command."""
LARGEST = 2**30
"""Bytes of the largest pack that is fetched, which is one file."""
MOST_LISTED = 2**27
"""Bytes of the list of a commit's files."""
_LIMITS = ("-c", "fetch.unpackLimit=1", "-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=60")
_FILE = ("100644", "100755")


@dataclass(frozen=True)
class Blob:
    """A file of a commit."""

    mode: str
    name: str
    size: str
    """In bytes; "-" for what is no file, such as a submodule."""


class GitCopy:
    """A commit of a branch, without a working tree; None where the branch is not there yet."""

    fixed = True

    def __init__(self, place: GitPlace, folder: Path) -> None:
        self.place, self._folder = place, folder
        self._git("init", "--quiet", "--bare", ".")
        self._ref = f"refs/heads/{place.branch or self._default_branch()}"
        self._commit = self._fetched()
        self._blobs = self._listed()
        self._reader: subprocess.Popen[bytes] | None = None

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._blobs})

    def read(self, name: str, most: int) -> bytes | None:
        blob = self._blobs.get(name)
        if blob is None:
            return None
        if blob.mode not in _FILE or not blob.size.isdecimal():
            raise DataError(f"{self.place.name}: {name} is a link or a submodule. Nothing was written. Remove it.")
        if int(blob.size) > most:
            raise too_large(self.place.name, name, most)
        stdin, stdout = self._pipes()
        stdin.write(f"{blob.name}\n".encode())
        stdin.flush()
        size = int(stdout.readline().split()[2])
        return stdout.read(size + 1)[:size]

    def publish(self, files: Mapping[str, Path], message: str) -> bool:
        author = self._git("var", "GIT_COMMITTER_IDENT", check=False)
        if author.returncode:
            raise ConfigError(
                "git does not know who commits. Tell it: git config --global user.name NAME && git config --global "
                "user.email ADDRESS"
            )
        if self._commit:
            self._git("read-tree", self._commit)
        paths = "".join(f"{path}\n" for path in files.values())
        made = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=paths.encode()).stdout.split()
        lines = (f"{_FILE[0]} {blob.decode()}\t{name}\0" for name, blob in zip(files, made, strict=True))
        self._git("update-index", "-z", "--index-info", stdin="".join(lines).encode())
        tree = self._git("write-tree").stdout.decode().strip()
        parent = ("-p", self._commit) if self._commit else ()
        commit = self._git("commit-tree", tree, *parent, "-m", message).stdout.decode().strip()
        return self._pushed(commit)

    def _pushed(self, commit: str) -> bool:
        done = self._git("push", "--porcelain", "--", self.place.address, f"{commit}:{self._ref}", check=False)
        if not done.returncode:
            return True
        # "[rejected]" is another one's push before ours; a lock is one of the same moment.
        if b"[rejected]" in done.stdout or b"lock" in done.stdout + done.stderr or self._tip() != self._commit:
            return False
        raise self._error(done)

    def close(self) -> None:
        """End the process that reads files."""
        if self._reader is not None:
            self._reader.communicate()

    def _default_branch(self) -> str:
        done = self._git("ls-remote", "--symref", "--", self.place.address, "HEAD")
        first = done.stdout.decode(errors="replace").partition("\n")[0]
        name = first.removeprefix("ref: refs/heads/").removesuffix("\tHEAD")
        return name if first.startswith("ref: refs/heads/") else self._empty_branch()

    def _empty_branch(self) -> str:
        """Return the default branch of a repository without commits, which only a clone is told."""
        if self._git("ls-remote", "--heads", "--", self.place.address).stdout:
            return DEFAULT_BRANCH
        self._git("clone", "--quiet", "--bare", "--", self.place.address, "empty")
        head = self._git("--git-dir=empty", "symbolic-ref", "HEAD").stdout.decode().strip()
        return head.removeprefix("refs/heads/")

    def _tip(self) -> str | None:
        found = self._git("ls-remote", "--", self.place.address, self._ref).stdout.split()
        return found[0].decode() if found else None

    def _fetched(self) -> str | None:
        if self._tip() is None:
            return None
        self._git("fetch", "--quiet", "--depth=1", "--no-tags", "--", self.place.address, self._ref)
        return self._git("rev-parse", "FETCH_HEAD").stdout.decode().strip()

    def _listed(self) -> dict[str, Blob]:
        if self._commit is None:
            return {}
        found = {}
        for line in self._list_files(self._commit).split(b"\0")[:-1]:
            facts, _, name = line.partition(b"\t")
            mode, _, blob, size = facts.decode().split()
            found[os.fsdecode(name)] = Blob(mode, blob, size)
        return found

    def _list_files(self, commit: str) -> bytes:
        """Return the list of a commit's files; a few nested trees can stand for more than any memory."""
        command = ["git", "-C", str(self._folder), "ls-tree", "-r", "-z", "-l", commit]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as process:
            assert process.stdout is not None
            listed = process.stdout.read(MOST_LISTED + 1)
            if len(listed) > MOST_LISTED:
                process.kill()
                raise DataError(f"{self.place.name} has too many files for a board. Nothing was written.")
        if process.returncode:
            raise DataError(f"{self.place.name}: git could not list the files of {commit}. Nothing was written.")
        return listed

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._reader is None:
            command = ["git", "-C", str(self._folder), "cat-file", "--batch"]
            self._reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        return self._reader.stdin, self._reader.stdout

    def _git(self, *given: str, stdin: bytes | None = None, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = ["git", "-C", str(self._folder), *_LIMITS, *given]
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, env=_environment(), preexec_fn=_limit_files
            )
        except FileNotFoundError:
            raise ConfigError("A git repository needs git, which is not here: apt install git.") from None
        try:
            out, err = process.communicate(stdin, timeout=_seconds(given[0]))
        except subprocess.TimeoutExpired:
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):  # a helper of git may still hold them
                if stream is not None:
                    stream.close()
            process.wait()
            raise DataError(
                f"{self.place.name}: git had no answer for `{given[0]}` in {_seconds(given[0]):.0f} "
                "seconds. Nothing was written. Check the address, and try again later."
            ) from None
        done = subprocess.CompletedProcess(command, process.returncode, out, err)
        if check and done.returncode:
            raise self._error(done)
        return done

    def _error(self, done: subprocess.CompletedProcess[bytes]) -> DataError:
        lines = [line.strip() for line in (done.stdout + done.stderr).decode(errors="replace").splitlines()]
        telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "!"))] or lines or ["?"]
        why = "; ".join(telling[:3]).replace(self.place.address, self.place.name)
        return DataError(
            f"{self.place.name}: git was refused ({why:.400}). Check the address and your rights there: git ls-remote "
            f"{self.place.name.partition('#')[0]}"
        )


class GitPlace:
    """A branch of a git repository; without one, the default branch."""

    def __init__(self, name: str, address: str, branch: str | None) -> None:
        self.name, self.address, self.branch = name, address, branch

    @contextmanager
    def opened(self, *, writing: bool) -> Iterator[GitCopy]:
        del writing
        with tempfile.TemporaryDirectory(prefix="emobench.") as folder:
            copy = GitCopy(self, Path(folder))
            try:
                yield copy
            finally:
                copy.close()


def _seconds(action: str) -> float:
    return PATIENCE if action == "ls-remote" else LONGEST


def _limit_files() -> None:
    """Limit the size of the files that git writes, and with it that of a fetched pack."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = LARGEST if hard == resource.RLIM_INFINITY else min(LARGEST, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


def _environment() -> dict[str, str]:
    """Return the environment of git: messages in English, and no repository but the one that is named."""
    own = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")
    return {**{key: value for key, value in os.environ.items() if key not in own}, "LC_ALL": "C"}
