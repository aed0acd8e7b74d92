"""PSFT: proximal supervised fine-tuning (Zhu et al., 2025, arXiv 2508.17784)."""

from torch import Tensor

import emobench


class Psft(emobench.SnapshotObjective):
    """-min(r_t, 1 + clip),  r_t = q_t / q_old,t

    PPO's clipped objective with an advantage of 1 for each target; q_old is the model at the last step that is a
    multiple of `every`. A target that became more likely by the factor 1 + clip has no gradient until the next copy.
    The defaults are those of the authors' script (`run_psft.sh`, `clip_ratio_high`): a copy for each batch of 64, which
    is trained in 8 steps. As in their `compute_policy_loss` (verl, `core_algos.py`, commit 569b1ba), |log r_t| is at
    most 20. Their lower limit, `clip_ratio_low`, never acts: the advantage is not negative. every = 1 has the gradient
    of MLE, as far as the model has no dropout.
    """

    clip: float = emobench.param(0.28, low=0.0, help="largest relative increase of q_t that has a gradient")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -self._ratio(s).clamp(max=1 + self.clip)

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        ratio = self._ratio(s)
        inside = self._log_ratio(s).abs() <= 20
        return {"log_prob": -ratio * (inside & (ratio <= 1 + self.clip))}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        ratio = self._ratio(s)
        return {"ratio": ratio, "clipped": (ratio > 1 + self.clip).to(ratio.dtype)}

    def _ratio(self, s: emobench.TokenStatistics) -> Tensor:
        return self._log_ratio(s).clamp(-20, 20).exp()

    def _log_ratio(self, s: emobench.TokenStatistics) -> Tensor:
        return s.log_prob - s.side["old_log_prob"].to(s.log_prob.dtype)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Psft]
