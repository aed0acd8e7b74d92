"""Exact distances between a trained model Q and the oracle language P, and P's perplexity of the model's own samples.

No surrogate and no sampling error in the distributions: at every position of P's test texts both next-symbol
distributions are known in full, and compared as those of a surrogate are.

Legend: X texts, B of a batch, T positions, N positions that count, S states or distances, V symbols (EOS is V - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import MetricError, ModelError
from emobench.data.oracle.language import HiddenMarkovLanguage
from emobench.metrics.batching import reading
from emobench.metrics.distances import DISTANCES, distance_score
from emobench.metrics.distribution_distances import (
    TOKEN_BUDGET,
    Distribution,
    LogProbs,
    compare,
    of_model,
)
from emobench.models.head import probe_head
from emobench.tasks.scores import Score

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def oracle_distances(
    model: PreTrainedModel,
    language: HiddenMarkovLanguage,
    texts: Sequence[Sequence[int]],
    *,
    token_budget: int = TOKEN_BUDGET,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Score]:
    """Compare Q and P at every position of P's own texts (word ids without EOS), the EOS position included.

    Returns a Score for each of `metrics.distances.DISTANCES`, averaged over positions; an example is a text, its value
    the mean over its positions, its weight their number.
    The cross-entropies are those of the paper's Figure 2 (A.4.1), with the true P in place of a surrogate.

    Positions past the model's context are left out, and the scores then carry the flag `truncated`. ModelError where
    the model's symbols are not the language's; MetricError where there is no text.
    """
    if not texts:
        raise MetricError("The oracle distances need at least one text; give a limit of at least 1.")
    head, symbols = probe_head(model), language.emission_SV.shape[1]
    if head.tokens != symbols:
        raise ModelError(
            f"The model has {head.tokens} symbols, the oracle language {symbols}; "
            "the exact comparison needs a model made for that language."
        )
    context = getattr(model.config, "max_position_embeddings", None)
    rows = [[language.eos_id, *text][:context] for text in texts]
    counts = [len(row) for row in rows]
    with reading(model) as device:
        means_XS = compare(
            of_language(language),
            of_model(model, head),
            rows,
            counts,
            vocabulary=symbols,
            device=device,
            token_budget=token_budget,
            progress=progress,
        )
    flags = ("truncated",) if sum(counts) < sum(len(text) + 1 for text in texts) else ()
    ids = list(map(str, range(len(rows))))
    scores = {}
    for i, name in enumerate(DISTANCES):
        scores[name] = distance_score(name, means_XS[:, i], np.array(counts), ids, flags)
    return scores


def of_language(language: HiddenMarkovLanguage) -> Distribution:
    """Return the language's own P(. | prefix), for rows that begin with EOS."""

    def read(ids_BT: Tensor, inside_BT: Tensor) -> LogProbs:
        probs_NS = language.state_probs(ids_BT.cpu().numpy())[inside_BT.cpu().numpy()]
        return lambda part: torch.from_numpy(np.log(probs_NS[part] @ language.emission_SV)).to(ids_BT.device)

    return read


def oracle_perplexity(
    language: HiddenMarkovLanguage, samples: Sequence[Sequence[int]], ended: Sequence[bool] | None = None
) -> Score:
    """Return PPL_oracle: P's perplexity of a model's own samples, the exponential of nats per symbol over all samples.

    `samples` are word ids without EOS; where `ended` is true (all, by default) the EOS that ended the sample counts,
    too. An example is a sample: nats per symbol, weighted by its symbols. Samples without any symbol are left out;
    MetricError where none is left.
    """
    ends = [True] * len(samples) if ended is None else list(ended)
    counts_X = np.array([len(sample) + bool(end) for sample, end in zip(samples, ends, strict=True)], int)
    if not counts_X.sum():
        raise MetricError("PPL_oracle needs at least one sampled symbol; sample more or longer texts.")
    nats_X = -language.log_prob(samples, ends)
    examples = {}
    for i in np.flatnonzero(counts_X):
        examples[str(i)] = (float(nats_X[i] / counts_X[i]), float(counts_X[i]))
    return Score(
        value=float(np.exp(nats_X.sum() / counts_X.sum())),
        n=len(examples),
        higher_is_better=False,
        unit="perplexity",
        examples=examples,
        aggregate="exp_mean",
    )
