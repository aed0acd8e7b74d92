"""PPL_oracle: the perplexity of generated texts under another model (EMO paper, 4.1.3), weighted by token.

The texts are tokenized again, so that any causal LM may be the oracle. The official code takes the exponential of a
mean of batch means, which depends on the batches; this does not.

Legend: R rows (texts), N prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emobench.core.errors import MetricError, ModelError
from emobench.metrics.perplexity import perplexity
from emobench.metrics.token_pass import Row, TokenSums, evaluate_tokens
from emobench.models.head import probe_head
from emobench.objectives import IGNORED
from emobench.tasks.scores import Score


def oracle_perplexity(
    runs: Sequence[Sequence[tuple[str, str]]],
    ids: Sequence[str],
    model: Any,
    tokenizer: Any,
    *,
    scope: str,
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """Return the perplexity of each run's texts (beginning, continuation), one of each prompt that `ids` name.

    With `scope` "continuation" the tokens that hold a character of the continuation count, also one that begins before
    it; with "text" all do. The first token of a text is a target only where the tokenizer puts a BOS before it by
    itself; special tokens are none. Raises MetricError for a text beyond the oracle's context, or if nothing counts.
    """
    texts = [pair for run in runs for pair in run]
    rows = _rows(texts, tokenizer, scope)
    try:
        sums = evaluate_tokens(model, probe_head(model, tokenizer), rows, progress=progress)
    except ModelError as error:  # costs this metric, not the others
        raise MetricError(f"PPL_oracle: {error}") from None
    shape = (len(runs), len(ids))
    tokens_RN, nats_RN = sums.tokens_R.reshape(shape), sums.sums_R["log_prob"].reshape(shape)
    score = perplexity(TokenSums(tokens_RN.sum(0), {"log_prob": nats_RN.sum(0)}), ids)
    return replace(score, repeats=tuple((_of_run(*run),) for run in zip(tokens_RN, nats_RN, strict=True)))


def _of_run(tokens_N: np.ndarray, log_probs_N: np.ndarray) -> float:
    return perplexity(TokenSums(tokens_N, {"log_prob": log_probs_N}), [str(i) for i in range(len(tokens_N))]).value


def _rows(texts: Sequence[tuple[str, str]], tokenizer: Any, scope: str) -> list[Row]:
    """Return a row for each text, whose labels are the tokens that count."""
    borders = [0] * len(texts)
    if scope == "continuation":
        if not tokenizer.is_fast:
            raise MetricError(
                f"oracle.scope is continuation, and the oracle's {type(tokenizer).__name__} does not say where its "
                "tokens stand in a text; add --set oracle.scope=text, or use a model with a tokenizer.json."
            )
        borders = [len(beginning) for beginning, _ in texts]
    # verbose=False: a text beyond the context is said below, in our words.
    encoded = tokenizer(
        [beginning + continuation for beginning, continuation in texts],
        return_special_tokens_mask=True,
        return_offsets_mapping=scope == "continuation",
        verbose=False,
    )
    ends = [[end for _, end in row] for row in encoded.get("offset_mapping", [])]
    return [
        {
            "input_ids": row,
            "labels": [
                token if not special and (not ends or ends[i][at] > borders[i]) else IGNORED
                for at, (token, special) in enumerate(zip(row, encoded["special_tokens_mask"][i], strict=True))
            ],
        }
        for i, row in enumerate(encoded["input_ids"])
    ]
