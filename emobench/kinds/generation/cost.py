"""How many tokens an evaluation of kind `generation` reads, from its rules and the size of its split."""

from __future__ import annotations

from emobench.kinds.cost import Cost, SplitSize, least
from emobench.kinds.generation.rules import GenerationProtocol

TOKENS_PER_WORD = 1.3
BATCH = 16384
"""Tokens of a batch of samples, prefixes included."""


def generation_cost(rules: GenerationProtocol, split: SplitSize) -> Cost:
    """Return the tokens of prefixes (once a prompt), of samples and of PPL_test's text, at most.

    The featurizer, the oracle and the sentence encoder, if the rules name them, read the samples once more.
    The human texts, which are read once for all runs, count for each.
    """
    words = TOKENS_PER_WORD if rules.unit == "words" else 1
    # No more texts are long enough than the split has tokens for.
    enough = None if split.tokens is None else max(round(split.tokens / (rules.shortest * words)), 1)
    prompts = least(rules.limit, split.rows, enough)
    read = least(None if rules.test_blocks is None else rules.test_blocks * rules.max_length, split.tokens)
    if prompts is None or read is None:
        return Cost(prompts, None)
    prefix, samples = rules.prefix * words, rules.sampling.samples
    new = rules.continuation + rules.sampling.extra_tokens
    text = prefix + new
    sampled = prompts * (prefix + samples * new)
    batches = max(-(-prompts * samples * text // BATCH), 1)
    auxiliary = {"featurizer": prompts * (samples + 1) * min(text, rules.mauve.max_length)}
    if rules.oracle.model is not None:
        auxiliary["oracle"] = prompts * samples * text
    if rules.coherence.encoder is not None:
        auxiliary["coherence"] = sampled
    return Cost(
        prompts,
        round(sampled + read),
        steps=round(batches * new),
        batch_tokens=BATCH,
        auxiliary_tokens={part: round(tokens) for part, tokens in auxiliary.items()},
    )
