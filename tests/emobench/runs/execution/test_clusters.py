"""Clusters: what is refused, and a worker that makes a stage through submitit's executor on this machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from emobench.core.errors import ConfigError, RunError, UnknownNameError
from emobench.core.extras import MissingPackageError
from emobench.models.device import Place
from emobench.runs.execution import clusters
from emobench.runs.execution.clusters import cluster_of
from emobench.runs.execution.reporter import Silent
from emobench.runs.execution.workers import local_worker


def of(text: str, runs: Path) -> object:
    return cluster_of(text, runs=runs, device="cpu", processes=2, memory=None)


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="--on: There is no cluster 'slum'; did you mean 'slurm'"):
        of("slum", tmp_path)
    with pytest.raises(ConfigError, match="could not be read"):
        of("slurm(1", tmp_path)


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_package_that_is_missing_is_named(
    tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emobench.runs.execution.clusters.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=rf"package {package}, .* pip install 'emobench\[{name}\]'"):
        of(name, tmp_path)


def test_a_stage_that_was_never_planned_comes_back_as_its_error(tmp_path: Path) -> None:
    """A job of its own makes it, in a process that the job starts; the error has the words of `emobench stage run`."""
    places, start = cluster_of("slurm(cluster=local)", runs=tmp_path, device="cpu", processes=2, memory=None)
    assert [place.name for place in places] == ["slurm:0", "slurm:1"]
    worker = start(places[0], tmp_path)
    error = worker.make("0" * 16, "mle, seed 0, its training", Silent())
    assert error is not None
    assert error.exit_code == ConfigError.exit_code
    assert f"mle, seed 0, its training: KEY {'0' * 16}: 0 stages of {tmp_path}" in str(error)
    worker.terminate()
    assert isinstance(worker.make("1" * 16, "mle, its training", Silent()), RunError)


def test_a_job_is_lost_once_squeue_was_asked_after_it_and_lists_it_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = tmp_path / "jobs"
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\nexec cat {listing}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(clusters, "LOOK", 0.0)
    queue = clusters._Queue()
    assert queue.has("7", since=0.0)  # squeue fails: the file is not there
    listing.write_text("7\n8\n")
    assert queue.has("7", since=0.0)
    assert not queue.has("9", since=0.0)
    assert queue.has("9", since=time.monotonic() + 1)  # submitted since then
    listing.unlink()
    assert queue.has("7", since=0.0)


def test_a_job_whose_time_ends_stops_its_worker_and_goes_on_with_the_same_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = local_worker(Place("this node", "", {}), tmp_path)
    monkeypatch.setattr(clusters, "_here", worker)
    submission = clusters.SlurmStage().checkpoint(str(tmp_path), "0" * 16, "mle")
    assert worker.ended
    worker.finish()
    assert isinstance(submission.function, clusters.SlurmStage)
    assert submission.args == (str(tmp_path), "0" * 16, "mle")
