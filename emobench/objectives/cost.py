"""Ground costs: the cost C(t, v) of token v where t is the target. `expected_cost` is its mean over v.

    cost=pretrained, initial or MODEL        1 - cosine of the tokens' rows in an embedding (EMO paper, Eq. 14)
    cost=digits or numbers                   the distance of two numbers
    cost=./FILE.py:FUNCTION or ./FILE.npy    a user's function, or a user's matrix

Legend: V vocabulary, P padded vocabulary, E width of the embedding, U distinct targets, K kept tokens, C tokens of a
chunk, S rows of a slice.
"""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import ConfigError, PluginError, UnknownNameError, UserError, first_line
from emobench.core.family import module_of_file, run_foreign
from emobench.objectives.engine.products import has_triton, multiply_wide, padded_head, row_buffer, whole_rows

_GPU_MULTIPLE = 128
_SLICE_BYTES = 64 << 20  # of float32 costs, which are then rounded or checked
NUMBERS = {"digits": re.compile("[0-9]"), "numbers": re.compile(r" ?[0-9]+(\.[0-9]+)?")}
"""The texts of the tokens that are numbers, by the name of the cost."""
FAR = 1.01
"""The cost between tokens without a distance, in units of the largest distance (`NTLoss.reweigh_fn` in ntloss)."""
_TRIED = 4
"""A user's function is tried with this many targets before any training."""

UserCosts: TypeAlias = Callable[[Sequence[str], list[int]], Any]
"""The texts of the V tokens, and the ids of U targets -> (U, V) costs."""


class GroundCost(ABC):
    """Costs from a target to every token: finite, at least 0, and 0 to itself. It has no parameters.

    A subclass sets `rows_VE` and defines `_write_costs`.
    """

    rows_VE: Tensor
    """One row for each token, on the device of the costs. A checkpoint stores its digest."""
    exact: torch.dtype = torch.float32
    """The dtype in which costs are computed."""
    slot_V: Tensor | None = None
    """For each token, the index of its kept cost row, or -1, on the CPU. None if no rows are kept."""
    _kept: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.rows_VE)

    @property
    def zero_rows(self) -> int:
        """Number of tokens whose row is 0, such as padding."""
        return 0

    @abstractmethod
    def _write_costs(self, tokens_U: Tensor, out_UV: Tensor) -> Tensor:
        """Write the costs from each of `tokens_U` to every token, and return them. `out_UV` is float32 or float64."""

    def covers(self, tokens_N: Tensor) -> Tensor:
        """Return whether distances from each token are known, (N,); of a numeric cost, whether it is a number."""
        return torch.ones_like(tokens_N, dtype=torch.bool)

    def check(self, tokens_K: Tensor) -> None:
        """Raise PluginError if a user's costs from one of these tokens cannot be used."""
        return

    def row_dtype(self, cosines: torch.dtype) -> torch.dtype:
        """Return the dtype of the engine's cost rows, where those of cosines have the dtype `cosines`.

        Other costs may be above 65,504 or need more digits, so that they are never float16.
        """
        return torch.promote_types(cosines, torch.float32)

    def first(self, vocabulary: int) -> Self:
        """Return the costs of the first `vocabulary` tokens; the others are padding. Memory is shared."""
        if vocabulary == len(self):
            return self
        part = copy(self)
        part.rows_VE = self.rows_VE[:vocabulary]
        part.slot_V, part._kept = None, None
        return part

    def keep(self, tokens_K: Tensor) -> None:
        """Keep the cost rows of these tokens between calls. Each row takes 2 V or 4 V bytes; the values are exact.

        Use it for the most frequent target tokens. Their rows would otherwise be computed for every batch.
        """
        if not len(tokens_K):
            self.slot_V, self._kept = None, None
            return
        tokens_K = tokens_K.long().unique().cpu()
        self.slot_V = torch.full((len(self),), -1)
        self.slot_V[tokens_K] = torch.arange(len(tokens_K))
        self._kept = (tokens_K.to(self.rows_VE.device), self.rows_VE.new_empty(0))

    def kept_rows(self, dtype: torch.dtype, multiple: int = 1) -> Tensor | None:
        """Return the kept cost rows, (K, V), in the order of `slot_V`, or None.

        Rows are padded in memory to a multiple of `multiple` entries.
        """
        if self._kept is None:
            return None
        tokens_K, kept_KV = self._kept
        if kept_KV.dim() != 2 or kept_KV.dtype != dtype or kept_KV.stride(0) % multiple:
            kept_KV = self.costs(tokens_K, out=row_buffer(self.rows_VE, len(tokens_K), len(self), dtype, multiple))
            self._kept = (tokens_K, kept_KV)
        return kept_KV

    def costs(self, tokens_U: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return the costs from each of `tokens_U` to every token, (U, V), written to `out` if it is given."""
        if out is None:
            out = self.rows_VE.new_empty(len(tokens_U), len(self), dtype=self.exact)
        for start in range(0, len(tokens_U), self._slice):
            rows = slice(start, start + self._slice)
            self._write_costs(tokens_U[rows], out[rows])
        return out

    def expected(self, probs_CV: Tensor) -> Tensor:
        """Return sum_w P(w) C(w, v) for every token v and each distribution P of a chunk, (C, V).

        It computes the rows of all tokens of some probability, a slice at a time.
        """
        cost_CV = torch.zeros_like(probs_CV)
        tokens_W = probs_CV.any(dim=0).nonzero()[:, 0]
        for part_S in tokens_W.split(self._slice):
            cost_CV += probs_CV[:, part_S] @ self.costs(part_S).to(probs_CV.dtype)
        return cost_CV

    @property
    def _slice(self) -> int:
        return max(1, _SLICE_BYTES // (4 * len(self)))


class CostEmbedding(GroundCost):
    """The frozen embedding that defines the costs. It is not a parameter and is not saved with a model.

    By default the rows are a copy, divided once by their L2 norms. `copy=False` uses the tensor itself and stores only
    the norms; this is for a frozen head, or for costs from the head as it is trained. A zero row (padding) stays zero:
    its cost to every other token is 1. Costs from half-precision rows are divided by the norms of the *rounded* rows;
    almost equal tokens then keep different costs.
    """

    def __init__(
        self,
        weight_VE: Tensor,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        copy: bool = True,
    ) -> None:
        exact = weight_VE.dtype if weight_VE.dtype == torch.float64 else torch.float32
        if weight_VE.dim() != 2 or not weight_VE.is_floating_point():
            raise UserError(
                f"A cost embedding is {tuple(weight_VE.shape)} of {weight_VE.dtype}; expected floats, (tokens, width), "
                "such as model.get_output_embeddings().weight."
            )
        if copy:
            rows_VE = weight_VE.detach().to(device=device, dtype=exact, copy=True)
            tiny = torch.finfo(exact).tiny
            for _ in range(2):  # the second pass removes the rounding error of the first
                rows_VE /= torch.linalg.vector_norm(rows_VE, dim=1, keepdim=True).clamp_min(tiny)
            dtype = dtype or exact
            # On a GPU with the padding that its products take; see `padded_head`.
            multiple = _GPU_MULTIPLE if rows_VE.is_cuda and dtype != exact else 1
            self._rows_PE = padded_head(rows_VE, len(rows_VE), multiple, dtype)
            self.rows_VE = self._rows_PE[: len(rows_VE)]
        else:
            self.rows_VE = self._rows_PE = weight_VE.detach().to(device=device, dtype=dtype)
        self.exact = exact
        norm_V = torch.linalg.vector_norm(self.rows_VE, dim=1, dtype=exact)
        self.inverse_norm_V = torch.where(norm_V > 0, 1 / norm_V, 0.0)
        self._normalised = copy
        self._unit = copy and self.rows_VE.dtype == exact

    @property
    def zero_rows(self) -> int:
        """Number of rows that are 0, such as padding."""
        return int((self.inverse_norm_V == 0).sum())

    def first(self, vocabulary: int) -> Self:
        part = super().first(vocabulary)
        part.inverse_norm_V = self.inverse_norm_V[:vocabulary]
        return part

    def row_dtype(self, cosines: torch.dtype) -> torch.dtype:
        return cosines

    def costs(self, tokens_U: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return 1 - cos between each of `tokens_U` and every token, (U, V). Costs are at least 0, to itself exactly 0.

        If `out`, (U, V), is given, the costs are written to it and rounded once to its dtype.
        """
        if out is None:
            out = self.rows_VE.new_empty(len(tokens_U), len(self), dtype=self.exact)
        if out.dtype == self.exact:
            return self._write_costs(tokens_U, out)
        if out.is_cuda and self._normalised and out.dtype == self.rows_VE.dtype and has_triton():
            # The product's epilogue rounds 1 - cos once, so almost equal tokens keep their digits. This needs rows of
            # length 1: for other lengths, 1 - <x, y> could round to exactly 1 or overflow.
            out_UP = whole_rows(out)
            rows_PE = self._rows_PE[: out_UP.shape[1]]
            torch.addmm(out.new_ones(len(rows_PE)), self.rows_VE[tokens_U], rows_PE.T, alpha=-1, out=out_UP)
            from emobench.objectives.engine.triton_rows import finish_costs

            finish_costs(out, tokens_U, self.inverse_norm_V)
            return out
        for start in range(0, len(tokens_U), self._slice):
            part_S = tokens_U[start : start + self._slice]
            exact_SV = out.new_empty(len(part_S), len(self), dtype=self.exact)
            out[start : start + self._slice] = self._write_costs(part_S, exact_SV)
        return out

    def _write_costs(self, tokens_U: Tensor, out_UV: Tensor) -> Tensor:
        multiply_wide(self.rows_VE[tokens_U].neg_(), self.rows_VE, out_UV)
        if not self._unit:
            out_UV *= self.inverse_norm_V[tokens_U, None]
            out_UV *= self.inverse_norm_V
        return out_UV.add_(1).clamp_(min=0).scatter_(1, tokens_U[:, None], 0)

    def expected(self, probs_CV: Tensor) -> Tensor:
        """Return sum_w P(w) C(v, w) for every token v and each distribution P of a chunk, (C, V), in float32.

        Two products of width E replace the product with the V x V cost matrix. float64 rows give float64.
        """
        exact = self.exact
        probs_CV = probs_CV.to(exact)
        scaled_CV = probs_CV * self.inverse_norm_V
        mean_CE = scaled_CV @ self.rows_VE.to(exact)
        cost_CV = (mean_CE @ self.rows_VE.to(exact).T).mul_(self.inverse_norm_V)
        cost_CV = torch.sub(probs_CV.sum(dim=1, keepdim=True), cost_CV, out=cost_CV)
        # A zero row has cost 1 to every other token and cost 0 to itself.
        return cost_CV.sub_(probs_CV * (self.inverse_norm_V == 0)).clamp_(min=0)


class NumericCost(GroundCost):
    """|x_t - x_v| between tokens that are the numbers x; `far` between any other two tokens.

    `far` is 1.01 times the largest distance of two numbers: no wrong number costs as much as a word, and the cost is a
    metric. It is the cost of number-token loss (Zausinger et al., ICML 2025; `NTLoss` of ntloss 0.3.0 with `reweigh`),
    which has it for targets that are numbers.
    """

    def __init__(self, values_V: Tensor) -> None:
        """Take the number of each token, float32 or float64; infinity for a token that is none."""
        self.rows_VE = values_V[:, None]
        self.exact = values_V.dtype
        numbers_K = values_V[values_V.isfinite()]
        self.far = FAR * float(numbers_K.max() - numbers_K.min())

    def covers(self, tokens_N: Tensor) -> Tensor:
        return self.rows_VE[tokens_N, 0].isfinite()

    def _write_costs(self, tokens_U: Tensor, out_UV: Tensor) -> Tensor:
        value_V = self.rows_VE[:, 0]
        torch.sub(value_V, value_V[tokens_U][:, None], out=out_UV)
        out_UV.abs_().nan_to_num_(nan=self.far, posinf=self.far)
        return out_UV.scatter_(1, tokens_U[:, None], 0)

    def expected(self, probs_CV: Tensor) -> Tensor:
        """Return sum_w P(w) C(w, v) as the base does. Only the rows of numbers are computed."""
        tokens_K = self.covers(torch.arange(len(self), device=self.rows_VE.device)).nonzero()[:, 0]
        cost_KK = self.costs(tokens_K)[:, tokens_K].to(probs_CV.dtype)
        total_C1 = probs_CV.sum(dim=1, keepdim=True)
        number_CK = probs_CV[:, tokens_K]
        word_C1 = total_C1 - number_CK.sum(dim=1, keepdim=True)
        cost_CV = self.far * (total_C1 - probs_CV)
        cost_CV[:, tokens_K] = number_CK @ cost_KK + self.far * word_C1
        return cost_CV.clamp_(min=0)


class CostFunction(GroundCost):
    """The costs that a user's function returns, checked each time.

    `function(texts, targets)` gets the texts of the V tokens and the ids of U targets. It returns (U, V) numbers: an
    array, a tensor or lists. Raises PluginError for another shape, and for costs that a `GroundCost` may not have.
    """

    def __init__(self, function: UserCosts, texts: Sequence[str], file: Path, like: Tensor) -> None:
        self._function = function
        self._texts = texts
        self._file = file
        self.rows_VE = like.new_empty(len(texts), 0)
        self.exact = like.dtype
        self.check(torch.arange(min(_TRIED, len(texts))))

    def check(self, tokens_K: Tensor) -> None:
        for part_S in tokens_K.split(self._slice):
            self.costs(part_S)

    def _write_costs(self, tokens_U: Tensor, out_UV: Tensor) -> Tensor:
        targets = tokens_U.tolist()

        def returned() -> Tensor:
            costs = self._function(self._texts, targets)
            if "complex" in str(getattr(costs, "dtype", "")):
                raise PluginError("expected real numbers, and they are complex")
            return torch.as_tensor(costs, dtype=out_UV.dtype, device="cpu")

        cost_UV = run_foreign(returned, f"The ground cost of {self._file}", "fails", str(self._file.absolute()))
        self._refuse_wrong(cost_UV, targets)
        return out_UV.copy_(cost_UV[:, : len(self)])

    def _refuse_wrong(self, cost_UV: Tensor, targets: list[int]) -> None:
        shape, expected = tuple(cost_UV.shape), (len(targets), len(self._texts))
        if shape != expected:
            raise PluginError(
                f"The ground cost of {self._file} has the shape {shape} for {len(targets)} targets; expected "
                f"{expected}, a row for each target and a column for each token."
            )
        own_U1 = torch.tensor(targets)[:, None]
        wrong_UV = ~(cost_UV >= 0) | cost_UV.isinf()
        wrong_UV.scatter_(1, own_U1, cost_UV.gather(1, own_U1) != 0)
        for row, token in wrong_UV.nonzero()[:1].tolist():
            target = self._texts[targets[row]]
            raise PluginError(
                f"The ground cost of {self._file} is {float(cost_UV[row, token])} for the token "
                f"'{self._texts[token]}' and the target '{target}'; expected a finite number of at least 0, and 0 for "
                "the target itself."
            )


def is_embedding(source: str) -> bool:
    """Return whether a parameter `cost` names an embedding: "pretrained", "initial", or a model's name or folder."""
    return source not in NUMBERS and cost_file(source) is None


def cost_file(source: str) -> Path | None:
    """Return the user's file that a parameter `cost` names, ./FILE.py:FUNCTION or ./FILE.npy. None for other costs."""
    path, _, _ = source.rpartition(":")
    if path.endswith(".py"):
        return Path(path)
    return Path(source) if source.endswith(".npy") else None


def ground_cost(source: str, texts: Sequence[str], like: Tensor) -> GroundCost:
    """Return the cost of a source that is no embedding, on the device of a tensor; float64 if it is, else float32.

    `texts` are those of the tokens, in which a space stands for the mark of a word's beginning. Raises ConfigError for
    a file that cannot be used, and for a tokenizer without numbers; PluginError for wrong costs.
    """
    like = like.new_empty(0, dtype=torch.float64 if like.dtype == torch.float64 else torch.float32)
    file = cost_file(source)
    if file is None:
        return NumericCost(like.new_tensor(_numbers(source, texts)))
    if file.suffix == ".npy":
        return CostFunction(_matrix_rows(file, len(texts)), texts, file, like)
    module = module_of_file(file, "a ground cost as ./FILE.py:FUNCTION")
    functions = dict(inspect.getmembers(module, inspect.isfunction))
    name = source.rpartition(":")[2]
    if name not in functions:
        raise UnknownNameError("function", name, functions, where=f"{file}: ")
    return CostFunction(functions[name], texts, file, like)


def _numbers(source: str, texts: Sequence[str]) -> list[float]:
    """Return the number of each token, infinity for a token that is none."""
    values = [math.inf] * len(texts)
    for token, text in enumerate(texts):
        if NUMBERS[source].fullmatch(text):
            values[token] = float(text)
    distinct = set(values) - {math.inf}
    if len(distinct) < 2:
        raise ConfigError(
            f"cost={source}: the tokenizer has {len(distinct)} different {source} that are single tokens; expected at "
            "least 2. Take a model whose tokenizer has them."
        )
    return values


def _matrix_rows(file: Path, tokens: int) -> UserCosts:
    """Return a function of the rows of a matrix, which stays on the disk."""
    try:
        matrix_VV = np.lib.format.open_memmap(file, mode="r")
    except Exception as error:  # whatever numpy raises for a damaged header
        raise ConfigError(f"{file} cannot be read ({first_line(error)}); expected a file of numpy.save.") from None
    if matrix_VV.shape != (tokens, tokens):
        raise ConfigError(
            f"{file} has the shape {matrix_VV.shape}; expected {(tokens, tokens)}, a row for each target and a column "
            "for each token."
        )
    return lambda texts, targets: matrix_VV[targets]
