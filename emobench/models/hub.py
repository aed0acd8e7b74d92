"""The hub: resolve a revision to a commit, and fetch the files of a commit. Offline, use only the local cache."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import huggingface_hub

from emobench.core.errors import DataError, Missing, ModelError, StorageError, UserError, first_line
from emobench.core.files import write_whole

TIMEOUT = 20
"""Time limit of one request to the hub, in seconds."""
FOREIGN = (".bin", ".h5", ".msgpack", ".gguf", ".pth", ".pt")
"""Suffixes of weight files in formats that emobench does not read."""
COMMIT = re.compile(r"[0-9a-f]{40}")
RepoKind = Literal["model", "dataset"]
MAIN, CONVERTED = "main", "refs/convert/parquet"
"""The branch that is meant where none is named, and that of a data set's files converted to Parquet by the hub."""
_RESOLVED: dict[tuple[RepoKind, str, str], str] = {}
"""The branch, tag or ref of each commit that the hub named: the cache is told once its files are there."""


def resolve_revision(repo: str, revision: str, *, offline: bool, kind: RepoKind = "model") -> str:
    """Return the current commit (40 hex digits) of a branch, a tag or a ref of a hub repository.

    Offline it is the commit of the last download of this branch, tag or ref, from the local cache; raises Missing if
    there is none. Raises ModelError, or DataError for a dataset, if the hub refuses.
    """
    if COMMIT.fullmatch(revision):
        return revision
    if offline:
        return _cached_commit(repo, revision, kind)
    try:
        commit = huggingface_hub.HfApi().repo_info(repo, revision=revision, repo_type=kind, timeout=TIMEOUT).sha
        assert commit is not None
    except Exception as error:  # the errors of the HTTP client have no public common class
        raise _refused(f"{repo} at '{revision}'", error, kind) from None
    _RESOLVED[kind, repo, commit] = revision
    return commit


def fetch(repo: str, commit: str, patterns: Sequence[str], *, offline: bool, kind: RepoKind = "model") -> Path:
    """Return the local folder with the files of `commit` that match `patterns`. Missing files are downloaded.

    Offline the folder contains only earlier downloads; raises Missing if there are none. The caller checks for the
    files that it needs.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = huggingface_hub.snapshot_download(
            repo, repo_type=kind, revision=commit, allow_patterns=list(patterns), local_files_only=offline
        )
    except OSError as error:
        if offline and isinstance(error, LocalEntryNotFoundError):
            raise missing_download(repo, commit, kind) from None
        raise _refused(repo, error, kind) from None
    if not offline and (revision := _RESOLVED.get((kind, repo, commit))) is not None:
        with suppress(StorageError):
            write_whole(_cached(repo, kind) / "refs" / revision, commit, "The hub's cache", "It may be read-only.")
    return Path(folder)


def list_files(repo: str, commit: str, *, offline: bool, kind: RepoKind = "model") -> list[str]:
    """Return the names of the files of a commit, sorted; offline those of earlier downloads."""
    if offline:
        folder = fetch(repo, commit, ["*"], offline=True, kind=kind)
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    try:
        return sorted(huggingface_hub.HfApi().list_repo_files(repo, revision=commit, repo_type=kind))
    except Exception as error:  # the errors of the HTTP client have no public common class
        raise _refused(repo, error, kind) from None


class Published(NamedTuple):
    """The weights in a repository: shapes by name (None: no complete safetensors), and other weight files."""

    shapes: Mapping[str, tuple[int, ...]] | None
    others: tuple[str, ...] = ()


@functools.cache
def published_weights(repo: str, commit: str) -> Published:
    """Return the weights in a model's repository at a commit, from its file list and the headers of its safetensors.

    No weights are downloaded. Raises ModelError if the hub does not answer.
    """
    api = huggingface_hub.HfApi()
    try:
        siblings = api.model_info(repo, revision=commit, files_metadata=True, timeout=TIMEOUT).siblings or []
        names = {file.rfilename for file in siblings if file.size != 0}
        if not names & {"model.safetensors", "model.safetensors.index.json"}:
            return Published(None, tuple(sorted(name for name in names if name.endswith(FOREIGN))))
        metadata = api.get_safetensors_metadata(repo, revision=commit, timeout=TIMEOUT)
    except Exception as error:  # the errors of the HTTP client have no public common class
        raise _refused(repo, error, "model") from None
    files = metadata.files_metadata.values()
    return Published({name: tuple(info.shape) for file in files for name, info in file.tensors.items()})


def _cached(repo: str, kind: RepoKind) -> Path:
    from huggingface_hub import constants  # reads HF_HUB_OFFLINE, which --offline sets
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type=kind)


def _cached_commit(repo: str, revision: str, kind: RepoKind) -> str:
    refs = _cached(repo, kind) / "refs"
    if (refs / revision).is_file():
        return (refs / revision).read_text(encoding="utf-8").strip()
    commits: set[str] = set()
    if revision == MAIN:  # a download of a commit by other tools leaves no ref
        commits = {path.name for path in (refs.parent / "snapshots").glob("*") if COMMIT.fullmatch(path.name)}
        commits -= {ref.read_text(encoding="utf-8").strip() for ref in refs.rglob("*") if ref.is_file()}
    if not commits:
        raise missing_download(repo, revision, kind)
    if len(commits) > 1:
        named = ", ".join(f"{repo}@{commit}" for commit in sorted(commits))
        raise _error(kind)(
            f"The local hub cache has several commits of {repo} and does not say which is '{revision}': give one of "
            f"{named}."
        )
    return commits.pop()


def _error(kind: RepoKind) -> type[UserError]:
    return ModelError if kind == "model" else DataError


def missing_download(repo: str, revision: str, kind: RepoKind, files: str = "") -> Missing:
    """Return the error for a repository, or for some of its files, that the local cache lacks."""
    command = f"hf download {repo}"
    if kind == "dataset":
        command += " --repo-type dataset"
    if revision != MAIN:
        command += f" --revision {revision}"
    item = f"{repo} (revision {revision})"
    if files:
        item += f", {files}"
    how = f"Run `{command}` where there is a network, or run once without --offline."
    return Missing(item, repo, None, how)


def _refused(item: str, error: Exception, kind: RepoKind) -> UserError:
    return _error(kind)(
        f"The hub gave nothing for {item} ({type(error).__name__}: {first_line(error)}): check the name and the "
        "network, or give --offline to use local files. If it is gated, accept its licence on the hub, then `hf auth "
        "login`."
    )
