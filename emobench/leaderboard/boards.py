"""Names of the boards that ship: "published:" has the papers' own numbers, "studies:NAME" the results of a study."""

from __future__ import annotations

from pathlib import Path

from emobench.core.errors import ConfigError, UnknownNameError

PUBLISHED = "published:"
STUDIES = "studies:"
_INSTALLED = Path(__file__).with_name("data")
_CHECKOUT = Path(__file__).parents[2] / "leaderboards"


def board_folder(board: str | Path) -> Path:
    """Return the folder of a board, which is given by its folder or by the name of one that ships.

    Raises UnknownNameError for a study that does not ship.
    """
    name = str(board)
    if name == PUBLISHED:
        return _shipped() / "published"
    if not name.startswith(STUDIES):
        return Path(board)
    study, folder = name.removeprefix(STUDIES), _shipped() / "studies"
    known = [path.name for path in folder.iterdir() if path.is_dir()]
    if study not in known:
        raise UnknownNameError("study", study, known, hint="Give it as studies:NAME.")
    return folder / study


def own_board(board: str | Path) -> Path:
    """Return the folder of a board that entries are written to; raises ConfigError for one that ships."""
    if str(board).startswith((PUBLISHED, STUDIES)):
        raise ConfigError(f"--leaderboard {board} ships with emobench and is read-only; expected a folder of your own.")
    return Path(board)


def split_reference(text: str, board: str | Path) -> tuple[Path, str]:
    """Return the board that a reference to entries is about, and the reference without the board's name.

    It is `board`, unless the reference begins with the name of one that ships: "published:emo-table3/llama-7b/emo",
    "studies:smollm2/emo".
    """
    if text.startswith(PUBLISHED):
        return board_folder(PUBLISHED), text.removeprefix(PUBLISHED)
    if text.startswith(STUDIES):
        study, _, reference = text.partition("/")
        return board_folder(study), reference
    return board_folder(board), text


def boards_of(texts: list[str], board: str | Path) -> list[Path]:
    """Return the boards that references to entries are about, and `board`, each once."""
    folders = [board_folder(board)]
    for text in texts:
        folders.append(split_reference(text, board)[0])
    return list(dict.fromkeys(folders))


def _shipped() -> Path:
    """Return the folder of the boards that ship: of an installed package beside this module, else of the checkout."""
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
