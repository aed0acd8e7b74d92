"""One pass of a model over rows of tokens, reduced to sums per row or group: perplexity of given and generated texts.

Legend: R rows or groups, B rows of a batch, T positions, N target tokens (in PPL_oracle: prompts), D hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from emobench.core.errors import MetricError, ModelError
from emobench.metrics.batching import Progress, check_context, pad, read_batches, reading
from emobench.metrics.perplexity import TokenSums, perplexity
from emobench.models.head import Head, final_hidden, probe_head
from emobench.objectives import IGNORED, token_statistics
from emobench.tasks.scores import Score

Row = Mapping[str, Sequence[int]]


def evaluate_tokens(
    model: Any,
    head: Head,
    rows: Sequence[Row],
    needs: frozenset[str] | set[str] = frozenset({"log_prob"}),
    *,
    groups: Sequence[np.ndarray] | None = None,
    token_budget: int = 16384,
    progress: Progress = None,
) -> TokenSums:
    """Sum the statistics named in `needs` over each row's target tokens, without holding the logits of a batch.

    A row has `input_ids` and, where not every token is a target, `labels` of the same length (unshifted: position t
    predicts label t + 1; -100 is no target). The first position is never a target. `groups` has, for each row, the
    number of the group that each of its tokens is summed into; without it a row is a group.
    """
    names = frozenset(needs) | {"log_prob"}
    lengths = [len(row["input_ids"]) for row in rows]
    if groups is None:
        count = len(rows)
        groups = [np.full(length, i) for i, length in enumerate(lengths)]
    else:
        count = 1 + max(int(group.max()) for group in groups)
    tokens_R = np.zeros(count)
    sums_R = {name: np.zeros(count) for name in names}
    check_context(model, max(lengths, default=0), "The longest row does not fit")
    with reading(model) as device:
        for batch in read_batches(lengths, token_budget, progress):
            ids, labels = [], []
            for i in batch:
                ids.append(rows[i]["input_ids"])
                labels.append(rows[i].get("labels", ids[-1]))
            ids_BT, mask_BT = pad(ids, 0, device)
            labels_BT, _ = pad(labels, IGNORED, device)
            hidden_BTD = final_hidden(model, input_ids=ids_BT, attention_mask=mask_BT)
            next_BT = labels_BT[:, 1:]
            is_target = next_BT != IGNORED
            row_N, place_N = is_target.nonzero().cpu().numpy().T
            statistics = token_statistics(hidden_BTD[:, :-1][is_target], head, next_BT[is_target], names)
            del hidden_BTD  # before the next batch is read
            own_groups = [groups[i] for i in batch]
            starts_B = np.cumsum([0, *map(len, own_groups[:-1])])
            group_N = np.concatenate(own_groups)[starts_B[row_N] + place_N + 1]
            tokens_R += np.bincount(group_N, minlength=count)
            for name in names:
                sums_R[name] += np.bincount(group_N, statistics[name].double().cpu().numpy(), minlength=count)
    return TokenSums(tokens_R, sums_R)


def oracle_perplexity(
    runs: Sequence[Sequence[tuple[str, str]]],
    ids: Sequence[str],
    model: Any,
    tokenizer: Any,
    *,
    scope: str,
    progress: Progress = None,
) -> Score:
    """Return PPL_oracle (EMO paper, 4.1.3), the perplexity of generated texts under another model, weighted by token.

    A run has texts (beginning, continuation), one of each prompt that `ids` name. They are tokenized again, so that any
    causal LM may be the oracle. The official code takes the exponential of a mean of batch means, which depends on the
    batches; this does not.
    With `scope` "continuation" the tokens that hold a character of the continuation count, also one that begins before
    it; with "text" all do. The first token of a text is a target only where the tokenizer puts a BOS before it by
    itself; special tokens are none. Raises MetricError for a text beyond the oracle's context, or if nothing counts.
    """
    rows = _oracle_rows(list(chain.from_iterable(runs)), tokenizer, scope)
    try:
        sums = evaluate_tokens(model, probe_head(model, tokenizer), rows, progress=progress)
    except ModelError as error:  # costs this metric, not the others
        raise MetricError(f"PPL_oracle: {error}") from None
    shape = (len(runs), len(ids))
    tokens_RN, nats_RN = sums.tokens_R.reshape(shape), sums.sums_R["log_prob"].reshape(shape)
    score = perplexity(TokenSums(tokens_RN.sum(0), {"log_prob": nats_RN.sum(0)}), ids)
    repeats = []
    for tokens_N, nats_N in zip(tokens_RN, nats_RN, strict=True):
        repeats.append((perplexity(TokenSums(tokens_N, {"log_prob": nats_N}), ids).value,))
    return replace(score, repeats=tuple(repeats))


def _oracle_rows(texts: Sequence[tuple[str, str]], tokenizer: Any, scope: str) -> list[Row]:
    """Return a row for each text, whose labels are the tokens that count."""
    inside = scope == "continuation"
    if inside and not tokenizer.is_fast:
        raise MetricError(
            f"oracle.scope is continuation, and the oracle's {type(tokenizer).__name__} does not say where its "
            "tokens stand in a text; add --set oracle.scope=text, or use a model with a tokenizer.json."
        )
    # verbose=False: a text beyond the context is reported below, in our words.
    whole = [beginning + continuation for beginning, continuation in texts]
    encoded = tokenizer(
        whole,
        return_special_tokens_mask=True,
        return_offsets_mapping=inside,
        verbose=False,
    )
    rows: list[Row] = []
    for i, (beginning, _) in enumerate(texts):
        ids_T = np.array(encoded["input_ids"][i], dtype=np.int64)
        counts_T = np.array(encoded["special_tokens_mask"][i], dtype=np.int64) == 0
        if inside:
            offsets_T2 = np.array(encoded["offset_mapping"][i], dtype=np.int64).reshape(-1, 2)
            counts_T &= offsets_T2[:, 1] > len(beginning)
        labels_T = np.where(counts_T, ids_T, IGNORED)
        rows.append({"input_ids": ids_T.tolist(), "labels": labels_T.tolist()})
    return rows
