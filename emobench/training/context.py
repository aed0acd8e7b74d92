"""Inputs of `Objective.setup`, before the first step: the pre-trained head, a frozen teacher, the corpus's language.

Legend: B sequences, T positions, C tokens of a chunk, H hidden width, V vocabulary or symbols (EOS is V - 1), S states.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from emobench.core.errors import ConfigError, ModelError
from emobench.core.settings import PRETRAINED
from emobench.data.oracle.language import Floats, HiddenMarkovLanguage
from emobench.models.device import with_float64
from emobench.models.head import (
    Head,
    context_of,
    eval_mode,
    final_hidden,
    find_linear,
    probe_head,
    token_texts,
    unwrapped,
)
from emobench.objectives import IGNORED, CostEmbedding, GroundCost, next_labels, token_statistics
from emobench.objectives.cost import ground_cost, is_embedding
from emobench.objectives.engine.products import accumulator_dtype, multiply_wide

MODEL_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids")


@dataclass(frozen=True)
class TrainingContext:
    """The `SetupContext` of one training; see `emobench.objectives.base.SetupContext`."""

    head: Head
    total_steps: int
    pretrained: bool
    """False if the weights are random."""
    load_head: Callable[[str], Tensor]
    """Load the head weight of another model, by name or folder."""
    model: Any = None
    """The model to train, with its weights before training."""
    load_model: Callable[[str], Any] | None = None
    """Load another causal LM, by name or folder."""
    known_language: HiddenMarkovLanguage | None = None
    """The distribution of the training corpus, or None if it is not known."""
    tokenizer: Any = None
    """The model's tokenizer, for costs that read the texts of its tokens."""

    @property
    def vocabulary(self) -> int:
        return self.head.linear.out_features

    def head_weight(self) -> Tensor:
        self._require_pretrained()
        # A copy, because training changes the head.
        return self.head.linear.weight.detach().clone()

    def cost_embedding(self, source: str = PRETRAINED) -> GroundCost:
        weight = self.head.linear.weight.detach()
        device = weight.device
        if not is_embedding(source):
            if self.tokenizer is None:
                raise ConfigError(f"cost={source} reads the texts of the tokens; give the model's own: tokenizer=...")
            return ground_cost(source, token_texts(self.tokenizer, self.head.tokens), weight)
        if source == PRETRAINED:
            self._require_pretrained()
        elif source != "initial":
            weight = self.load_head(source)
            self._check_rows(f"cost={source}: its head", len(weight), self.vocabulary)
        # Half precision on a GPU. Values are at most 1, where float16 is eight times finer than bfloat16.
        dtype = torch.float16 if device.type == "cuda" else None
        return CostEmbedding(weight[: self.head.tokens], dtype=dtype, device=device)

    def teacher(self, name: str) -> FrozenTeacher:
        if name == PRETRAINED:
            self._require_pretrained()
            return FrozenTeacher(copy.deepcopy(self.model))
        if self.load_model is None:
            raise ModelError(f"The teacher {name} cannot be loaded here; take target={PRETRAINED}.")
        teacher = FrozenTeacher(self.load_model(name))
        self._check_rows(f"target={name}: its head", teacher.vocabulary, self.vocabulary)
        return teacher

    def language(self) -> DeviceLanguage:
        if self.known_language is None:
            raise unknown_language("the training corpus")
        self._check_rows("target=language: the oracle language", self.known_language.eos_id + 1, self.head.tokens)
        return DeviceLanguage(self.known_language, self.head.linear.weight.device)

    def snapshot(self) -> WeightSnapshot:
        return WeightSnapshot(self.model, self.head)

    def _require_pretrained(self) -> None:
        if not self.pretrained:
            raise no_pretrained_head()

    def _check_rows(self, what: str, rows: int, expected: int) -> None:
        if rows != expected:
            raise ConfigError(
                f"{what} has {rows} rows; expected {expected}, the vocabulary of the model that is trained. "
                "Take a model with the same tokenizer."
            )


def no_pretrained_head() -> ConfigError:
    """Return the error for an objective that needs pre-trained weights when the model starts from scratch."""
    return ConfigError(
        "This objective reads pre-trained weights, and this model starts from scratch; give another source, such as "
        "--objective 'emo(cost=gpt2)' or 'kd-forward(target=gpt2)', or 'emo(cost=initial)' for the random head."
    )


def unknown_language(corpus: str) -> ConfigError:
    """Return the error for an objective that needs P(. | prefix) of a corpus without a known distribution."""
    return ConfigError(
        f"target=language takes P from the oracle language, and the distribution of {corpus} is not known; "
        "train on oracle-target or oracle-source with --model tiny-oracle, or give a teacher: target=MODEL."
    )


class FrozenTeacher:
    """A model in eval mode without gradients. It is not a module, so no optimizer or checkpoint contains it."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.head = probe_head(model)

    @property
    def vocabulary(self) -> int:
        """Number of rows of the head."""
        return self.head.linear.out_features

    @torch.no_grad()
    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        """Return the final hidden states, (B, T, H), under the caller's autocast. Position t predicts token t + 1."""
        context = context_of(self.model)
        if context is not None and input_ids_BT.shape[1] > context:
            raise ConfigError(
                f"The teacher reads at most {context} tokens, and a row has {input_ids_BT.shape[1]}; add "
                f"--set recipe.max_length={context}, or take a teacher with a longer context."
            )
        # Each process of a distributed training has its own device.
        self.model.to(input_ids_BT.device)
        return final_hidden(self.model, input_ids=input_ids_BT, attention_mask=attention_mask_BT)

    @torch.no_grad()
    def logits(self, hidden_CH: Tensor) -> Tensor:
        """Return the logits of a chunk, (C, V), always float32 (float64 for a float64 teacher)."""
        linear = self.head.linear
        out_CV = hidden_CH.new_empty(len(hidden_CH), self.vocabulary, dtype=accumulator_dtype(linear.weight.dtype))
        multiply_wide(hidden_CH.to(linear.weight.dtype), linear.weight, out_CV)
        if linear.bias is not None:
            out_CV += linear.bias
        return self.head.logit_map.apply(out_CV)


class WeightSnapshot:
    """A `Snapshot`: a copy of the weights that are trained. The model's own modules compute with it."""

    def __init__(self, model: Any, head: Head) -> None:
        self._old = _LabelProbabilities(model, head)
        self._weights: dict[str, Tensor] = {}

    def take(self) -> None:
        self._weights = {}  # the memory of the copy before
        for name, weight in self._old.named_parameters():
            if weight.requires_grad:
                self._weights[name] = weight.detach().clone()

    @torch.no_grad()
    def log_prob(self, batch: Mapping[str, Tensor]) -> Tensor:
        if not self._weights:
            raise ConfigError(
                "There is no copy of the model of an earlier step: another trainer's checkpoint does not contain it. "
                "Begin this training again, or resume it at a step at which a copy is due, a multiple of `every`."
            )
        device = batch["labels"].device
        # Those of a checkpoint are on the CPU.
        self._weights = {name: weight.to(device) for name, weight in self._weights.items()}
        with eval_mode(self._old):
            return functional_call(self._old, self._weights, (batch,))

    def state(self) -> dict[str, Tensor]:
        return dict(self._weights)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._weights = dict(state)


class _LabelProbabilities(nn.Module):
    """A model whose output is log q_t of each label, (B, T)."""

    def __init__(self, model: Any, head: Head) -> None:
        super().__init__()
        self.model = model
        self._head = head

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        inputs = {name: batch[name] for name in MODEL_INPUTS if name in batch}
        hidden_BTD = final_hidden(self.model, **inputs)
        next_BT = next_labels(batch["labels"], IGNORED)
        # peft may train a copy of the head.
        head = replace(self._head, linear=find_linear(unwrapped(self.model)))
        log_prob_N = token_statistics(hidden_BTD.flatten(0, 1), head, next_BT.flatten()).log_prob
        # Shift from the position that predicts to the label that it predicts. No position predicts the first label.
        return F.pad(log_prob_N.view(next_BT.shape)[:, :-1], (1, 0))


class DeviceLanguage:
    """The `KnownLanguage` of a `HiddenMarkovLanguage`.

    Training blocks are cut from a stream of texts, each followed by EOS, so a row may begin inside a text. P is the
    exact conditional distribution of that stream given the row. The state before the first symbol has the distribution
    of a random position in the stream. EOS starts a new text: a row that begins with EOS gives exactly
    `HiddenMarkovLanguage.state_probs`.
    """

    def __init__(self, language: HiddenMarkovLanguage, device: torch.device | str = "cpu") -> None:
        self.eos_id = language.eos_id
        self.emission_SV = torch.tensor(language.emission_SV, dtype=torch.float32, device=device)
        # The recursion is float64; its tables are small.
        wide = with_float64(self.emission_SV).device
        self._emission_VS = torch.tensor(language.emission_SV.T.copy(), device=wide)
        self._transition_SS = torch.tensor(language.transition_SS, device=wide)
        self._start_S = torch.tensor(language.start_S, device=wide)
        self._anywhere_S = torch.tensor(stream_states(language), device=wide)

    @torch.no_grad()
    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        """Return P(state that emits token t + 1 | tokens 0..t of the row), (B, T, S), float32.

        Values at padding are finite but have no meaning.
        """
        probs_BS = self._anywhere_S.expand(len(input_ids_BT), -1)
        steps = []
        for ids_B in with_float64(input_ids_BT).unbind(1):
            joint_BS = probs_BS * self._emission_VS[ids_B]
            probs_BS = (joint_BS / joint_BS.sum(-1, keepdim=True)) @ self._transition_SS
            probs_BS = torch.where((ids_B == self.eos_id)[:, None], self._start_S, probs_BS)
            steps.append(probs_BS.float())
        return torch.stack(steps, dim=1).to(input_ids_BT.device)


def stream_states(language: HiddenMarkovLanguage) -> Floats:
    """Return the probability of each state at a random position of an endless stream of texts with EOS, (S,)."""
    end_S = language.emission_SV[:, language.eos_id, None]
    step_SS = (1 - end_S) * language.transition_SS + end_S * language.start_S
    # The fixed point of the step, with probabilities that sum to 1.
    equations = np.vstack([step_SS.T - np.eye(len(step_SS)), np.ones(len(step_SS))])
    return np.linalg.lstsq(equations, np.append(np.zeros(len(step_SS)), 1.0))[0].clip(min=0)
