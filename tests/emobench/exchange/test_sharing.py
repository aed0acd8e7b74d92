"""Boards are shared by a folder or a data set of the hub: appended to, verified, never replaced, whoever is stopped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError
from emobench.core.settings import to_plain
from emobench.exchange import sharing
from emobench.exchange.sharing import DIGESTS, Hub, find_place, pull, push
from emobench.leaderboard import pack as packing
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.pack import PROMPTS
from emobench.leaderboard.store import Leaderboard, file_of
from emobench.leaderboard.verify import verify

sys.path.insert(0, str(Path(__file__).parent))  # the package of tests has no __init__.py
from hub_server import REPO, HubServer

MakeEntry = Callable[..., Entry]
SAMPLE = {"prefix_text": "human", "continuation_text": "generated", "sample": 0}


class Person:
    """Somebody with runs, a board, and a way to the shared one."""

    def __init__(self, folder: Path, entry_of: MakeEntry, repo: object) -> None:
        self.runs, self.board, self.repo = folder / "runs", Leaderboard(folder / "board"), str(repo)
        self._entry_of = entry_of

    def record(self, name: str, path: str = "", key: str = "", **changes: Any) -> Entry:
        """Record an entry with per-example results, a log, samples, and samples that are left out."""
        path = path or f"{name}-{self.runs.parent.name}"
        texts = {
            f"examples/{path}/examples.jsonl": f'{{"of": "{name} of {self.runs.parent}"}}\n',
            f"train/{path}/log.jsonl": f'{{"clock": "{self.runs.parent}"}}\n',
            f"generate/{path}/samples.jsonl": "".join(
                json.dumps({**SAMPLE, "prompt_id": str(number)}) + "\n" for number in range(PROMPTS + 1)
            ),
            f"answers/{path}/samples.jsonl": '{"doc": "human"}\n',
        }
        files = []
        for file, text in texts.items():
            (self.runs / file).parent.mkdir(parents=True, exist_ok=True)
            (self.runs / file).write_text(text)
            files.append({"path": file, "sha256": hashlib.sha256(text.encode()).hexdigest()})
        run = {"seed": 0, "key": key or path, "examples": files[0], "curves": files[1:2], "samples": files[2:]}
        entry = self._entry_of(name, runs=[run], **changes)
        self.board.append(entry)
        return entry

    def push(self) -> tuple[int, int]:
        done = push(self.board, find_place(self.repo), self.runs)
        return done.entries, done.there

    def pull(self) -> tuple[int, int]:
        done = pull(self.board, find_place(self.repo))
        return done.entries, done.there

    def has(self) -> set[str]:
        return {entry.id for entry in self.board.entries(superseded=True)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "shared"
    path.mkdir()
    return path


@pytest.fixture
def person(tmp_path: Path, entry_of: MakeEntry) -> Callable[..., Person]:
    return lambda name, repo: Person(tmp_path / name, entry_of, repo)


def _contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_one_pushed_another_pulls(folder: Path, person: Callable[..., Person]) -> None:
    ann, bob = person("ann", folder), person("bob", folder)
    old = ann.record("emo")
    new = ann.record("emo", "again", key=old.runs[0].key, supersedes=old.id)
    other = bob.record("mle")
    assert ann.push() == (2, 0)
    assert ann.push() == (0, 2)
    assert bob.push() == (1, 0)
    assert bob.pull() == (2, 1)
    assert ann.pull() == (1, 2)
    assert ann.has() == bob.has() == {old.id, new.id, other.id}
    assert ann.pull() == bob.push() == (0, 3)
    shutil.rmtree(ann.runs)
    for board in (ann.board, bob.board):
        assert verify(board, ann.runs) == (3, [])
    assert verify(Leaderboard(folder), ann.runs) == (3, [])
    subprocess.run(["sha256sum", "--quiet", "--strict", "-c", DIGESTS], cwd=folder, check=True)
    listed = {line[66:] for line in (folder / DIGESTS).read_text().splitlines()}
    assert set(_contents(folder)) == {*listed, DIGESTS}


def test_a_pulled_entry_stands_for_one_of_the_same_runs_alone(
    folder: Path, person: Callable[..., Person], entry_of: MakeEntry
) -> None:
    ann, eve = person("ann", folder), person("eve", folder)
    mine = ann.record("emo")
    ann.push()
    eve.pull()
    again = eve.record("emo", "again", key=mine.runs[0].key, supersedes=mine.id)
    eve.push()
    assert pull(ann.board, find_place(ann.repo)).hidden == (mine.id,)
    assert [entry.id for entry in ann.board.entries()] == [again.id]
    theirs = entry_of("mle", runs=[{"seed": 0, "key": mine.runs[0].key}], supersedes=again.id)
    eve.board.append(theirs)
    with pytest.raises(DataError, match=f"{theirs.id}.*supersedes {again.id}, but its label is mle"):
        eve.push()
    (eve.board.path(theirs)).rename(folder / file_of(theirs))
    lines = [(folder / DIGESTS).read_text()]
    lines.append(f"{hashlib.sha256((folder / file_of(theirs)).read_bytes()).hexdigest()}  {file_of(theirs)}\n")
    (folder / DIGESTS).write_text("".join(lines))
    with pytest.raises(DataError, match=f"{theirs.id}.*supersedes {again.id}, but its label is mle"):
        ann.pull()
    assert [entry.id for entry in ann.board.entries()] == [again.id]


def test_pushes_at_once_lose_nothing(folder: Path, person: Callable[..., Person]) -> None:
    people, wanted = [person(name, folder) for name in ("ann", "bob", "eve")], set()
    for turn in range(2):
        wanted |= {one.record(f"{one.runs.parent.name}{turn}").id for one in people}
        with ThreadPoolExecutor() as pool:
            assert [done[0] for done in pool.map(Person.push, people)] == [1, 1, 1]
    for one in people:
        one.pull()
        assert one.has() == wanted
        assert verify(one.board, one.runs) == (6, [])


def test_the_same_run_on_two_machines_is_kept_twice(folder: Path, person: Callable[..., Person]) -> None:
    """Its files have the same paths, and other contents: a log has its own clock."""
    ann, bob = person("ann", folder), person("bob", folder)
    entries = ann.record("emo", "one-key"), bob.record("emo", "one-key")
    assert entries[0].id != entries[1].id
    ann.push()
    assert bob.push() == (1, 0)
    for one in (ann, bob):
        one.pull()
        assert verify(one.board, one.runs.parent / "none") == (2, [])
        assert one.push() == (0, 2)


@pytest.mark.parametrize("action", ["push", "pull"])
def test_stopped_anywhere_and_given_again_it_is_the_same(
    action: str, folder: Path, person: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = person("ann", folder), person("bob", folder)
    ann.record("emo")
    ann.push()
    kept = _contents(folder)
    target, act = (folder, ann.push) if action == "push" else (bob.board.root, bob.pull)
    if action == "push":
        ann.record("mle")
    original, written, states = sharing.write_whole, 0, []

    def stopped(path: Path, *given: Any) -> None:
        nonlocal written
        if path.is_relative_to(target):
            written += 1
            if written > last:
                raise KeyboardInterrupt
        original(path, *given)

    for last in range(99):
        written = 0
        with monkeypatch.context() as patch:
            for module in (sharing, packing):
                patch.setattr(module, "write_whole", stopped)
            try:
                act()
            except KeyboardInterrupt:
                pass
            else:
                break
        if action == "push":  # nothing of it is there for others yet
            reader = person(f"reader{last}", folder)
            assert reader.pull() == (1, 0)
        act()
        states.append(_contents(target))
        shutil.rmtree(target)
        target.mkdir()
        for name, content in kept.items() if action == "push" else ():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    assert len(states) >= 5
    assert all(state == _contents(target) for state in states)


def _renumbered(folder: Path) -> Path:
    """Alter an entry of a shared folder, with its digest, as somebody would who knows how."""
    (path,) = folder.glob("*-v1/*.json")
    plain = json.loads(path.read_text())
    plain["model"]["name"] = "other"
    path.write_text(json.dumps(plain))
    _list_anew(folder)
    return path


def _list_anew(folder: Path) -> None:
    lines = [f"{hashlib.sha256(c).hexdigest()}  {n}\n" for n, c in _contents(folder).items() if "digests" not in n]
    (folder / DIGESTS).write_text("".join(sorted(lines, key=lambda line: line[66:])))


def _refused(*people: Person, match: str) -> None:
    """Assert that nobody can push or pull, and that nothing is written."""
    repo = Path(people[0].repo)
    before = _contents(repo)
    for one in people:
        there = _contents(one.board.root) if one.board.root.exists() else {}
        with pytest.raises(DataError, match=match) as refused:
            one.pull()
        assert "Nothing was written" in str(refused.value)
        assert one.board.root.exists() == bool(there)
        assert not there or _contents(one.board.root) == there
        if there:
            with pytest.raises(DataError, match=match):
                one.push()
        assert _contents(repo) == before


def test_an_altered_entry_is_refused_by_name(folder: Path, person: Callable[..., Person]) -> None:
    ann, bob = person("ann", folder), person("bob", folder)
    ann.record("emo")
    ann.push()
    bob.record("mle")
    name = _renumbered(folder).name
    _refused(bob, person("new", folder), match=f"{name}: `id` is")


@pytest.mark.parametrize("file", ["examples", "generate"])
def test_a_file_that_is_not_the_recorded_one_is_refused(file: str, folder: Path, person: Callable[..., Person]) -> None:
    ann = person("ann", folder)
    ann.record("emo")
    ann.push()
    paths = list((folder / "runs").rglob("*.xz"))
    (path,) = [path for path in paths if path.parts[-3] == file]
    path.write_bytes(next(other for other in paths if other != path).read_bytes())
    _refused(person("bob", folder), match=f"{path.name} is not the file that digests.txt lists")
    _list_anew(folder)
    _refused(person("bob", folder), match=rf"{path.name}: altered since")
    path.unlink()
    _refused(person("bob", folder), match=f"{path.name} is in digests.txt, but the file is missing")
    _list_anew(folder)
    _refused(person("bob", folder), match="1 of the 4 files that it names")


@pytest.mark.parametrize(
    "line",
    ["../outside.json", "/etc/passwd", "nlu-v1/../../0123456789ab.json", "runs/../../x.xz", "notes.txt", "runs/.x"],
)
def test_a_path_of_no_board_is_refused(line: str, folder: Path, person: Callable[..., Person]) -> None:
    ann = person("ann", folder)
    ann.record("emo")
    ann.push()
    with (folder / DIGESTS).open("a") as stream:
        stream.write(f"{'0' * 64}  {line}\n")
    _refused(ann, match="expected a sha256, two spaces")


@pytest.mark.parametrize("name", [".hidden", "a/" * 12 + "b"])
def test_a_file_that_nobody_could_pull_is_not_pushed(name: str, folder: Path, person: Callable[..., Person]) -> None:
    ann = person("ann", folder)
    ann.record("emo", name)
    with pytest.raises(DataError, match="a name that no shared board has"):
        ann.push()
    assert not [path for path in folder.iterdir() if not path.name.startswith(".")]


def test_odd_letters_in_a_path_are_no_line_ends(folder: Path, person: Callable[..., Person]) -> None:
    ann, bob = person("ann", folder), person("bob", folder)
    ann.record("emo", "one\u2028two\x85three")
    ann.push()
    assert bob.pull() == (1, 0)
    assert verify(bob.board, bob.runs) == (1, [])


def test_a_symbolic_link_is_refused(folder: Path, tmp_path: Path, person: Callable[..., Person]) -> None:
    ann = person("ann", folder)
    ann.record("emo")
    ann.push()
    for place in (folder / "runs", next(folder.glob("nlu-v1/*.json"))):
        aside = place.rename(tmp_path / "aside")
        place.symlink_to(aside)
        _refused(person("bob", folder), match="symbolic link")
        place.unlink()
        aside.rename(place)


def test_an_entry_with_other_content_is_refused_on_both_sides(folder: Path, person: Callable[..., Person]) -> None:
    ann, bob = person("ann", folder), person("bob", folder)
    entry = ann.record("emo")
    ann.push()
    bob.board.append(entry)
    bob.board.path(entry).write_text("{}")
    with pytest.raises(DataError, match=f"{entry.id}.json has other content"):
        bob.pull()
    (folder / DIGESTS).unlink()  # what a push left that was stopped, and was altered since
    (folder / file_of(entry)).write_text(json.dumps(to_plain(person("eve", folder).record("mle"))))
    with pytest.raises(DataError, match=f"{entry.id}.json has other content"):
        ann.push()


def test_mistakes_are_sentences(
    command: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    person: Callable[..., Person],
) -> None:
    ann = person("ann", folder)
    ann.record("emo")
    given = ("--leaderboard", ann.board.root, "--runs", ann.runs)

    def refused(*texts: object, repo: object = folder) -> None:
        command("leaderboard", "push", repo, *given).refused(*texts)

    refused("there is no such folder", repo=tmp_path / "no")
    refused("hf://datasets/OWNER/NAME", repo="hf://models/x")
    assert "secret" not in command("leaderboard", "pull", "https://ann:secret@example.org/b.git", *given[:2]).err
    command("leaderboard", "pull", folder, *given[:2]).refused("has no shared board", "push")
    (folder / "main.py").write_text("")
    refused("holds main.py", "Give an empty folder")
    (folder / "main.py").unlink()
    shutil.rmtree(ann.runs)
    shutil.rmtree(ann.board.root / "runs", ignore_errors=True)
    refused("Give its --runs DIR")


def test_the_commands_say_what_they_did(
    command: Callable[..., Any], person: Callable[..., Person], tmp_path: Path
) -> None:
    shared = tmp_path / "our boards"
    shared.mkdir()
    ann = person("ann", shared)
    ann.record("emo")
    mine = ("--leaderboard", tmp_path / "mine")
    done = command("leaderboard", "push", shared, "--leaderboard", ann.board.root, "--runs", ann.runs).ok()
    assert "entries sent: 1, with 4 files of runs; skipped, which it has: 0" in done.out
    assert f"emobench leaderboard pull '{shared}'" in done.out
    assert command("leaderboard", "pull", shared, *mine, "--json").ok().json["received"] == 1
    done = command("leaderboard", "pull", shared, *mine).ok()
    assert "entries received: 0, with 0 files of runs; skipped, which it has: 1" in done.out
    assert f"emobench leaderboard show --leaderboard {tmp_path / 'mine'}" in done.out


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    """A data set without a board, on a server of this machine."""
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "README.md").write_text("# Boards\n")
    with HubServer(tmp_path / "hub") as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_a_data_set_of_the_hub_is_shared_by_the_real_client(
    hub: HubServer, person: Callable[..., Person], tmp_path: Path
) -> None:
    """In processes of their own: the client reads its endpoint when it is imported."""
    ann, bob = (person(name, f"hf://datasets/{REPO}") for name in ("ann", "bob"))
    entries = {ann.record("emo").id, bob.record("mle").id}
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_test", "HF_HUB_OFFLINE": "0"}

    def run(verb: str, who: Person, *given: object, repo: str = "") -> subprocess.Popen[str]:
        words = [verb, repo or who.repo, "--leaderboard", who.board.root, *given]
        command = [sys.executable, "-m", "emobench", "leaderboard", *map(str, words)]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**os.environ, **own}, **pipes)

    pushed = [run("push", who, "--runs", who.runs) for who in (ann, bob)]
    for one in pushed:
        out, err = one.communicate()
        assert "entries sent: 1" in out, err
    assert hub.commits == 3
    reader = person("eve", ann.repo)
    out, err = run("pull", reader).communicate()
    assert "entries received: 2, with 7 files of runs; skipped, which it has: 0" in out, err
    assert reader.has() == entries
    assert verify(reader.board, reader.runs) == (2, [])
    wrong = run("pull", reader, repo="hf://datasets/some-org/other")
    assert "The hub gave nothing for some-org/other" in wrong.communicate()[1]
    assert wrong.returncode == 2


def test_a_data_set_is_refused_before_it_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = find_place("hf://datasets/some-org/boards")
    assert isinstance(place, Hub)
    name = "nlu-v1/0123456789ab.json"
    place.sizes = {name: 16 * 2**20, "weights.bin": 10**12}
    place.require_small()
    for sizes, told in (({name: 16 * 2**20 + 1}, "more than 16,777,216 bytes"), ({"runs/x": 2**31}, "2,147,483,648")):
        place.sizes = sizes
        with pytest.raises(DataError, match=told):
            place.require_small()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="some-org/boards"):
        pull(Leaderboard(tmp_path), place)
