"""The samples of all prompts as sampling runs: run r holds sample r of each prompt, in one order of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emobench.errors import DataError
from emobench.kinds.generation.samples import Sample


@dataclass(frozen=True)
class Runs:
    """Texts of sampling runs, as metrics read them."""

    samples: list[list[Sample]]
    """Run by run, each in the order of `ids`."""
    joiner: str
    """Between prefix and continuation."""

    @property
    def ids(self) -> list[str]:
        """The prompts."""
        return [sample.prompt_id for sample in self.samples[0]]

    @property
    def prefixes(self) -> list[str]:
        return [sample.prefix_text for sample in self.samples[0]]

    @property
    def references(self) -> list[str]:
        """The human texts: prefix and human continuation."""
        return [sample.reference_text for sample in self.samples[0]]

    @property
    def continuations(self) -> list[list[str]]:
        """What was generated, without the prefix."""
        return [[sample.continuation_text for sample in run] for run in self.samples]

    @property
    def pairs(self) -> list[list[tuple[str, str]]]:
        """Prefix with joiner, and continuation."""
        return [
            [(sample.prefix_text + self.joiner, sample.continuation_text) for sample in run] for run in self.samples
        ]

    @property
    def texts(self) -> list[list[str]]:
        """Prefix and continuation."""
        return [[sample.full_text(self.joiner) for sample in run] for run in self.samples]


def sampling_runs(samples: Sequence[Sample], joiner: str) -> Runs:
    """Group samples, in whatever order they stand; raises DataError unless each prompt has each run's sample once."""
    order = {key: place for place, key in enumerate(dict.fromkeys(sample.prompt_id for sample in samples))}
    runs: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        runs.setdefault(sample.sample, {})[sample.prompt_id] = sample
    found = [sorted(runs[place].values(), key=lambda sample: order[sample.prompt_id]) for place in sorted(runs)]
    if len(samples) != len(order) * len(runs) or any(len(run) != len(order) for run in found):
        raise DataError(
            f"{len(samples)} samples of {len(order)} prompts are not {len(runs)} of each: the file of samples was "
            "altered. Remove its folder and generate again."
        )
    return Runs(found, joiner)
