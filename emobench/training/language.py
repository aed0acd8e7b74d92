"""The oracle language on the model's device: its next-token distribution at every position of a batch.

Legend: B sequences, T positions, S states, V symbols (EOS is V - 1).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from emobench.data.oracle import Floats, HiddenMarkovLanguage


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
        self._emission_VS = torch.tensor(language.emission_SV.T.copy(), device=device)
        self._transition_SS = torch.tensor(language.transition_SS, device=device)
        self._start_S = torch.tensor(language.start_S, device=device)
        self._anywhere_S = torch.tensor(stream_states(language), device=device)

    @torch.no_grad()
    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        """Return P(state that emits token t + 1 | tokens 0..t of the row), (B, T, S), float32.

        Values at padding are finite but have no meaning.
        """
        probs_BS = self._anywhere_S.expand(len(input_ids_BT), -1)
        steps = []
        for ids_B in input_ids_BT.unbind(1):
            joint_BS = probs_BS * self._emission_VS[ids_B]
            probs_BS = (joint_BS / joint_BS.sum(-1, keepdim=True)) @ self._transition_SS
            probs_BS = torch.where((ids_B == self.eos_id)[:, None], self._start_S, probs_BS)
            steps.append(probs_BS.float())
        return torch.stack(steps, dim=1)


def stream_states(language: HiddenMarkovLanguage) -> Floats:
    """Return the probability of each state at a random position of an endless stream of texts with EOS, (S,)."""
    end_S = language.emission_SV[:, language.eos_id, None]
    step_SS = (1 - end_S) * language.transition_SS + end_S * language.start_S
    # The fixed point of the step, with probabilities that sum to 1.
    equations = np.vstack([step_SS.T - np.eye(len(step_SS)), np.ones(len(step_SS))])
    return np.linalg.lstsq(equations, np.append(np.zeros(len(step_SS)), 1.0))[0].clip(min=0)
