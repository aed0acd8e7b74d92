"""What objectives teach: the weight of a target token, and the target that a gradient implies.

With the logits z of a prediction, q = softmax(z) and the target t, MLE's gradient is q - 1[v=t]. An objective whose
gradient is g gives the token the weight g_t / (q_t - 1), and its implied target is q - g: cross-entropy with this
target instead of the one-hot target has the same gradient. The gradients come from the objective's own loss by plain
autograd, on float64 logits.

Legend: T tokens of the text, N predictions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.core.errors import ConfigError, PluginError
from emobench.library import objective as ready_objective
from emobench.models.head import token_count
from emobench.models.model import Model
from emobench.objectives import LogitsObjective, StatisticsObjective, objective_loss
from emobench.registry import load_objective
from emobench.report.baseline import USUAL
from emobench.report.charts.vega_lite import PREDICTION
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request

TEXT = "The capital of France is Paris, and she drank a cup of tea with milk before the train left for Berlin."
"""The default text. For a model that the harness made, it is the first text of its validation instead."""
ITEMS = 6
"""Vocabulary items of an example token: those with the largest masses."""
LOG_ODDS = torch.arange(-14, 7.5, dtype=torch.float64)
"""log(q_t / (1 - q_t)) of the made predictions, for q_t from 1e-6 to 0.999."""
TEMPERATURES = torch.logspace(-1, 0.5, 25).tolist()
COLUMNS = ("log_odds", "probability", "entropy", "weight")

TokenObjective: TypeAlias = StatisticsObjective | LogitsObjective


class Teaching(NamedTuple):
    """What objectives teach, as rows of tables.

    A row of `weights` is a made prediction: `objective`, `log_odds` and `probability` of the target, `entropy` in nats,
    and `weight`. A row of `targets` is the share of a vocabulary item after a context: `context`, `target`, `token`,
    `series` (an objective, or the prediction of the model) and `share`.
    """

    model: str
    weights: list[dict[str, Any]]
    targets: list[dict[str, Any]]


def teach(names: Sequence[str], model: str, text: str | None, request: Request, reporter: Reporter) -> Teaching:
    """Return what objectives teach a model on a text; names are as for `--objective` and `--model`.

    Raises ConfigError for an objective that reads more than a prediction and its target, and for a text without target.
    """
    for name in names:
        _require_token_loss(name)
    base = base_model(model, request)
    if text is None:
        text = str(base.made_by.stage.texts["validation"].texts[0]) if base.made_by else TEXT
    loaded = Execution(request, base, reporter).load(base)
    ids_T, logits_TV = _predictions(loaded, text)
    objectives = {}
    for name in names:
        ready = ready_objective(name, model=loaded.model, tokenizer=loaded.tokenizer).objective
        ready.begin_step(0, 1)
        objectives[name] = ready
    by_loss = F.cross_entropy(logits_TV, ids_T[1:], reduction="none").argsort().tolist()
    places = [by_loss[len(by_loss) // 3], by_loss[2 * len(by_loss) // 3], by_loss[-1]]
    weights = _weights(objectives, logits_TV[places[1]], int(ids_T[places[1] + 1]))
    return Teaching(loaded.name, weights, _targets(objectives, loaded.tokenizer, ids_T, logits_TV, sorted(set(places))))


def logit_gradients(objective: TokenObjective, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return d loss / d logits of each prediction, (N, V), by autograd through the objective's loss."""
    # The engine multiplies hidden states and a head. With the identity as hidden states, the head is the logits.
    head_VN = logits_NV.T.contiguous().requires_grad_()
    hidden_NN = torch.eye(len(logits_NV), dtype=logits_NV.dtype)
    total = objective_loss(objective, hidden_NN, head_VN, None, targets_N, impl="reference").total
    if not total.requires_grad:
        raise PluginError(f"{objective.name}: its loss has no gradient; see `emobench objectives check`.")
    (gradient_VN,) = torch.autograd.grad(total, head_VN)
    return gradient_VN.T


def implied_targets(objective: TokenObjective, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return q - d loss / d logits of each prediction, (N, V). It sums to 1 if the loss is a function of q."""
    return logits_NV.softmax(dim=1) - logit_gradients(objective, logits_NV, targets_N)


def token_weights(objective: TokenObjective, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return d loss / d logit of each target, divided by that of torch's cross-entropy, (N,)."""
    leaf_NV = logits_NV.detach().requires_grad_()
    (mle_NV,) = torch.autograd.grad(F.cross_entropy(leaf_NV, targets_N, reduction="sum"), leaf_NV)
    ratio_NV = logit_gradients(objective, logits_NV, targets_N) / mle_NV
    return ratio_NV.gather(1, targets_N[:, None])[:, 0]


def made_predictions(logits_V: Tensor, target: int, temperature: float) -> Tensor:
    """Return log q, (N, V): the target has the log-odds `LOG_ODDS`, and the others share the rest at a temperature."""
    others_V = logits_V / temperature
    others_V[target] = -torch.inf
    log_q_NV = F.logsigmoid(-LOG_ODDS)[:, None] + others_V.log_softmax(dim=0)
    log_q_NV[:, target] = F.logsigmoid(LOG_ODDS)
    return log_q_NV


def _require_token_loss(name: str) -> None:
    """Raise ConfigError unless an objective's loss is a function of one prediction and its target."""
    chosen = load_objective(name).objective
    reads = ", ".join(sorted(chosen.side_names))
    if chosen.adaptive_cost:
        reads = "the head in training"
    if not isinstance(chosen, TokenObjective):
        reads = "the model and the batch"
    if reads:
        raise ConfigError(
            f"--plot: '{name}' reads {reads}, and the picture is of losses that read one prediction and its target, "
            f"such as {USUAL}; drop --plot."
        )


def _predictions(model: Model, text: str) -> tuple[Tensor, Tensor]:
    """Return the ids of a text, (T,), and the logits of the model for each id after the first one, (T - 1, V)."""
    ids_T = torch.tensor(model.tokenizer(text)["input_ids"][: model.context])
    if len(ids_T) < 2:
        raise ConfigError(f"--text is {text!r}, {len(ids_T)} tokens of {model.name}; expected at least 2.")
    with torch.no_grad():
        logits_TV = model.model(input_ids=ids_T[None], use_cache=False).logits[0]
    return ids_T, logits_TV[:-1, : token_count(model.tokenizer)].double()


def _weights(objectives: Mapping[str, TokenObjective], logits_V: Tensor, target: int) -> list[dict[str, Any]]:
    rows = []
    targets_N = torch.full(LOG_ODDS.shape, target)
    for temperature in TEMPERATURES:
        log_q_NV = made_predictions(logits_V, target, temperature)
        entropy_N = torch.special.entr(log_q_NV.exp()).sum(dim=1)
        for name, objective in objectives.items():
            weight_N = token_weights(objective, log_q_NV, targets_N)
            columns = torch.stack([LOG_ODDS, LOG_ODDS.sigmoid(), entropy_N, weight_N], dim=1)
            for values in columns.tolist():
                rows.append({"objective": name, **dict(zip(COLUMNS, values, strict=True))})
    return rows


def _targets(
    objectives: Mapping[str, TokenObjective], tokenizer: Any, ids_T: Tensor, logits_TV: Tensor, places: Sequence[int]
) -> list[dict[str, Any]]:
    logits_NV, targets_N = logits_TV[places], ids_T[1:][places]
    shares = {PREDICTION: logits_NV.softmax(dim=1), USUAL: F.one_hot(targets_N, logits_NV.shape[1]).double()}
    for name, objective in objectives.items():
        shares[name] = implied_targets(objective, logits_NV, targets_N)
    largest_NV = torch.stack(list(shares.values())).amax(dim=0)
    names_of = tokenizer.convert_ids_to_tokens
    rows = []
    for number, place in enumerate(places):
        context = tokenizer.decode(ids_T[: place + 1])
        for token in largest_NV[number].topk(ITEMS).indices.tolist():
            row = {"context": context, "target": names_of(int(targets_N[number])), "token": names_of(token)}
            for series, share_NV in shares.items():
                rows.append({**row, "series": series, "share": float(share_NV[number, token])})
    return rows
