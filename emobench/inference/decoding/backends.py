"""Continuations of prompts by the backend that the rules name."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from emobench.inference.decoding.continuations import iter_continuations
from emobench.inference.decoding.request import Continuation, Decoding
from emobench.kinds.interface import Subject
from emobench.models.head import token_count


def continuations_of(
    subject: Subject,
    prompts_ids: Sequence[Sequence[int]],
    *,
    prompt_keys: Sequence[str],
    decoding: Decoding,
    ends: Sequence[int] = (),
    done: Container[int] = (),
) -> Iterator[list[tuple[int, list[Continuation]]]]:
    """Yield (prompt index, its continuations) of each batch as it ends; see `iter_continuations`."""
    given = {"prompt_keys": prompt_keys, "decoding": decoding, "ends": ends, "done": done}
    vocabulary = token_count(subject.tokenizer)
    if decoding.rule.backend == "vllm":
        from emobench.inference.vllm.continuations import iter_vllm_continuations

        assert subject.files is not None
        return iter_vllm_continuations(subject.files, prompts_ids, vocabulary=vocabulary, **given)
    return iter_continuations(subject.model, prompts_ids, vocabulary=vocabulary, **given)
