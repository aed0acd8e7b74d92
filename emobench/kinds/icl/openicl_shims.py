"""OpenICL 0.1.8 on transformers 5: what must be put in its way, all of it undone afterwards."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from emobench.core.errors import ConfigError
from emobench.models.quiet import quiet_libraries

IMPORTED = {
    "openicl": "openicl",
    "evaluate": "evaluate",
    "nltk": "nltk",
    "openai": "openai",
    "rank_bm25": "rank-bm25",
    "requests": "requests",
    "sklearn": "scikit-learn",
}
"""What OpenICL imports besides this project's own dependencies, and the name that pip knows."""
Progress = Callable[[int, int], None]


def require_openicl() -> None:
    """Raise ConfigError where OpenICL, or something that it imports, is not installed."""
    missing = [name for module, name in IMPORTED.items() if find_spec(module) is None]
    if missing:
        others = " ".join(name for name in missing if name != "openicl")
        commands = ["pip install --no-deps openicl==0.1.8"] if "openicl" in missing else []
        commands += [f"pip install {others}"] if others else []
        raise ConfigError(
            f"icl.engine=openicl runs OpenICL itself, which is not here whole: {', '.join(missing)} is missing. "
            f"{', then '.join(commands)} (--no-deps, because it pins transformers 4.28); or use --set icl.engine=auto."
        )


@contextmanager
def adapted_openicl(progress: Progress | None = None) -> Iterator[Any]:
    """Give the package `openicl`, made to run on transformers 5; its loops report to `progress`, with no bars or logs.

    1. DatasetEncoder calls `tokenizer.encode_plus`, which transformers 5 has no more.
    2. BatchEncoding.to passes `non_blocking`, which OpenICL's ListWrapper.to does not take.
    """
    with ExitStack() as undo:
        undo.enter_context(_root_handlers())
        undo.enter_context(quiet_libraries())
        undo.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", category=FutureWarning)  # sentence-transformers' old names
        import openicl
        from openicl.icl_inferencer import icl_ppl_inferencer
        from openicl.icl_retriever import icl_topk_retriever
        from openicl.utils import collators
        from transformers import PreTrainedTokenizerBase

        _put(undo, PreTrainedTokenizerBase, "encode_plus", _encode_plus)
        _put(undo, collators.ListWrapper, "to", lambda wrapper, *_, **__: wrapper.data)
        _put(undo, icl_topk_retriever, "tqdm", SimpleNamespace(tqdm=lambda steps, **_: _watched(steps, progress)))
        _put(undo, icl_ppl_inferencer, "trange", lambda *steps, **_: _watched(range(*steps), progress))
        for name in [name for name in logging.root.manager.loggerDict if name.startswith("openicl.")]:
            logger = logging.getLogger(name)
            undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        yield openicl


def _put(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)


def _encode_plus(tokenizer: Any, text: str, *, verbose: bool = True, **settings: Any) -> Any:
    return tokenizer(text, **settings)


def _watched(steps: Iterable[Any], progress: Progress | None) -> Iterator[Any]:
    total = len(steps)  # type: ignore[arg-type]
    for done, step in enumerate(steps, start=1):
        yield step
        if progress is not None:
            progress(done, total)


@contextmanager
def _root_handlers() -> Iterator[None]:
    """Give the root logger's handlers their levels back: OpenICL sets them when it is imported."""
    levels = [(handler, handler.level) for handler in logging.root.handlers]
    try:
        yield
    finally:
        for handler, level in levels:
            handler.setLevel(level)
