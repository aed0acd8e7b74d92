"""The hub: resolve a revision to a commit, and fetch the files of a commit. Offline, use only the local cache."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from emobench.core.errors import DataError, Missing, ModelError, StorageError, UserError, first_line
from emobench.core.files import write_whole

TIMEOUT = 20
"""Time limit of one request to the hub, in seconds."""
FOREIGN = (".bin", ".h5", ".msgpack", ".gguf", ".pth", ".pt")
"""Suffixes of weight files in formats that emobench does not read."""
COMMIT = re.compile(r"[0-9a-f]{40}")
RepoKind = Literal["model", "dataset"]
MAIN, CONVERTED = "main", "refs/convert/parquet"
"""The default branch, and the branch of a data set's files converted to Parquet by the hub."""
_RESOLVED: dict[tuple[RepoKind, str, str], str] = {}
"""The branch, tag or ref of each commit that the hub named: written to the cache after its files are downloaded."""


@dataclass(frozen=True)
class Repo:
    """A repository of the hub; offline, its files in the local cache. Raises ModelError, or DataError for a dataset."""

    name: str
    kind: RepoKind = "model"
    offline: bool = False

    def resolve(self, revision: str) -> str:
        """Return the current commit (40 hex digits) of a branch, a tag or a ref.

        Offline it is the commit of the last download of this branch, tag or ref, from the local cache; raises Missing
        if there is none.
        """
        if COMMIT.fullmatch(revision):
            return revision
        if self.offline:
            ref = self._cache / "refs" / revision
            if not ref.is_file():
                raise self.missing(revision)
            return ref.read_text(encoding="utf-8").strip()
        import huggingface_hub

        api = huggingface_hub.HfApi()
        try:
            commit = api.repo_info(self.name, revision=revision, repo_type=self.kind, timeout=TIMEOUT).sha
            assert commit is not None
        except Exception as error:  # the errors of the HTTP client have no public common class
            raise self.refused(error) from None
        _RESOLVED[self.kind, self.name, commit] = revision
        return commit

    def fetch(self, commit: str, patterns: Sequence[str]) -> Path:
        """Return the local folder with the files of `commit` that match `patterns`. Missing files are downloaded.

        Offline the folder contains only earlier downloads; raises Missing if there are none. The caller checks for the
        files that it needs.
        """
        import huggingface_hub
        from huggingface_hub.errors import LocalEntryNotFoundError

        names = list(patterns)
        try:
            folder = huggingface_hub.snapshot_download(
                self.name, repo_type=self.kind, revision=commit, allow_patterns=names, local_files_only=self.offline
            )
        except OSError as error:
            if self.offline and isinstance(error, LocalEntryNotFoundError):
                raise self.missing(commit) from None
            raise self.refused(error) from None
        revision = _RESOLVED.get((self.kind, self.name, commit))
        if revision is not None and not self.offline:
            with suppress(StorageError):
                write_whole(self._cache / "refs" / revision, commit, "The hub's cache", "It may be read-only.")
        return Path(folder)

    def files(self, commit: str) -> list[str]:
        """Return the names of the files of a commit, sorted; offline, of the files of earlier downloads."""
        if self.offline:
            folder = self.fetch(commit, ["*"])
            return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        try:
            import huggingface_hub

            return sorted(huggingface_hub.HfApi().list_repo_files(self.name, revision=commit, repo_type=self.kind))
        except Exception as error:  # the errors of the HTTP client have no public common class
            raise self.refused(error) from None

    def missing(self, revision: str, files: str = "") -> Missing:
        """Return the error for a repository, or for some of its files, that the local cache lacks."""
        command, item = f"hf download {self.name}", f"{self.name} (revision {revision})"
        if self.kind == "dataset":
            command += " --repo-type dataset"
        if revision != MAIN:
            command += f" --revision {revision}"
        if files:
            item += f", {files}"
        how = f"Run `{command}` where there is a network, or run once without --offline."
        return Missing(item, self.name, None, how)

    def refused(self, error: Exception) -> UserError:
        """Return the error for an answer of the hub."""
        kind = ModelError if self.kind == "model" else DataError
        return kind(
            f"The hub gave nothing for {self.name} ({type(error).__name__}: {first_line(error)}): check the name and "
            "the network, or give --offline to use local files. If it is gated, accept its licence on the hub, then "
            "`hf auth login`."
        )

    @property
    def _cache(self) -> Path:
        from huggingface_hub import constants  # reads HF_HUB_OFFLINE, which --offline sets
        from huggingface_hub.file_download import repo_folder_name

        return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=self.name, repo_type=self.kind)


class Published(NamedTuple):
    """The weights in a repository: shapes by name (None: no complete safetensors), and other weight files."""

    shapes: Mapping[str, tuple[int, ...]] | None
    others: tuple[str, ...] = ()


@functools.cache
def published_weights(repo: str, commit: str) -> Published:
    """Return the weights in a model's repository at a commit, from its file list and the headers of its safetensors.

    No weights are downloaded. Raises ModelError if the hub does not answer.
    """
    import huggingface_hub

    api = huggingface_hub.HfApi()
    try:
        siblings = api.model_info(repo, revision=commit, files_metadata=True, timeout=TIMEOUT).siblings or []
        names = {file.rfilename for file in siblings if file.size != 0}
        if not names & {"model.safetensors", "model.safetensors.index.json"}:
            return Published(None, tuple(sorted(name for name in names if name.endswith(FOREIGN))))
        metadata = api.get_safetensors_metadata(repo, revision=commit, timeout=TIMEOUT)
    except Exception as error:  # the errors of the HTTP client have no public common class
        raise Repo(repo).refused(error) from None
    files = metadata.files_metadata.values()
    return Published({name: tuple(info.shape) for file in files for name, info in file.tensors.items()})
