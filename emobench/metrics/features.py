"""Texts to vectors, which MAUVE compares.

Legend: N texts, B texts of a batch, T positions, D width of the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from emobench.core.errors import MetricError, ModelError
from emobench.metrics.batching import Progress, check_context, pad, read_batches, reading
from emobench.models.head import context_of, final_hidden

Pooling = Literal["mean", "last", "auto"]
PROBED = 8
"""Positions of the rows that tell a causal model from an encoder."""


def embed(
    texts: Sequence[str],
    model: Any,
    tokenizer: Any,
    *,
    pooling: Pooling,
    max_length: int,
    token_budget: int = 16384,
    progress: Progress = None,
) -> np.ndarray:
    """Return features_ND, float32, in the order of the texts, from a causal LM or an encoder.

    `pooling="last"` takes the final hidden state of the last token, as mauve-text does with GPT-2; "mean" averages the
    final hidden states of all tokens, as sentence encoders do; "auto" is "mean" for a model whose first position
    changes with the ids behind it, and "last" for a causal one. Texts are cut on the right after `max_length` tokens,
    special tokens (as the tokenizer adds them by itself) included.
    Raises MetricError for a text without tokens: mauve-text drops such texts in silence.
    """
    if not texts:
        raise MetricError("There is no text to compute features of.")
    # verbose=False: nothing to say about texts that are cut on purpose.
    ids = tokenizer(list(texts), truncation=True, max_length=max_length, verbose=False)["input_ids"]
    empty = [text for text, row in zip(texts, ids, strict=True) if not row]
    if empty:
        raise MetricError(
            f"{len(empty)} of {len(texts)} texts (the first: {empty[0][:40]!r}) have no token by the featurizer's "
            "tokenizer, and so no features; use a longer prefix, or another featurizer."
        )
    try:
        check_context(model, max(map(len, ids)), "The longest text does not fit the featurizer")
    except ModelError as error:  # costs this metric, not the others
        raise MetricError(str(error)) from None
    pad_id = tokenizer.pad_token_id or 0
    order: list[int] = []
    features = []
    with reading(model) as device:
        if pooling == "auto":
            pooling = "mean" if _reads_ahead(model, device) else "last"
        for batch in read_batches(list(map(len, ids)), token_budget, progress):
            own = [ids[i] for i in batch]
            ids_BT, mask_BT = pad(own, pad_id, device)
            hidden_BTD = final_hidden(model, input_ids=ids_BT, attention_mask=mask_BT).float()
            lengths_B = mask_BT.sum(1)  # rows are padded on the right
            if pooling == "last":
                features_BD = hidden_BTD[torch.arange(len(own), device=device), lengths_B - 1]
            else:
                features_BD = (hidden_BTD * mask_BT[..., None]).sum(1) / lengths_B[:, None]
            features.append(features_BD.cpu().numpy())
            order += batch
    return np.concatenate(features)[np.argsort(order)]


def _reads_ahead(model: Any, device: torch.device) -> bool:
    """Return whether the first position's final hidden state changes with the ids behind it, by running the model."""
    count = min(PROBED, context_of(model) or PROBED)
    rows = model.get_input_embeddings().weight.shape[0]
    ids_T = torch.arange(count, device=device) % rows
    others_T = torch.cat([ids_T[:1], (ids_T[1:] + 1) % rows])
    # Two batches of one row: the same kernels, so that a causal model's states differ by rounding at most.
    states = []
    for row_T in (ids_T, others_T):
        hidden_BTD = final_hidden(model, input_ids=row_T[None], attention_mask=torch.ones_like(row_T)[None])
        states.append(hidden_BTD[0, 0].float())
    first_D, other_D = states
    rounding = max(1e-3, 10 * torch.finfo(model.dtype).eps)
    return bool((first_D - other_D).norm() > rounding * first_D.norm())
