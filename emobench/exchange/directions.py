"""Which direction of a metric is better, by its name, for files that do not say so."""

from __future__ import annotations

import re

HIGHER = {
    *("acc", "accuracy", "acc_norm", "acc_bytes", "acc_all", "acc_mutual_info", "balanced_accuracy"),
    *("exact_match", "em", "exact", "match", "includes", "quasi_exact_match", "prefix_exact_match"),
    *("prompt_level_strict_acc", "prompt_level_loose_acc", "inst_level_strict_acc", "inst_level_loose_acc"),
    *("f1", "macro_f1", "micro_f1", "precision", "recall", "mcc", "matthews_correlation", "roc_auc", "pass", "mrr"),
    *("bleu", "sacrebleu", "chrf", "chrf++", "meteor", "bert_score", "bertscore", "bleurt", "likelihood"),
    *("rouge", "rouge1", "rouge2", "rougel", "rougelsum"),
    *("choice", "answer", "pattern", "math", "model_graded_qa", "model_graded_fact"),
}
"""In lower case: of lm-evaluation-harness's registry and tasks, and inspect's scorers."""
LOWER = {
    *("perplexity", "ppl", "word_perplexity", "byte_perplexity", "perplexity_per_token", "perplexity_per_seq"),
    *("bits_per_byte", "loss", "nll", "cross_entropy", "ter", "wer", "cer", "brier_score", "ece", "mse", "mae", "rmse"),
}
_AT = re.compile(r"(@|_at_)\d+$")
"""The k of pass@k."""


def known_direction(name: str) -> bool | None:
    """Return whether a higher value of a metric is better; None for a name that is not known."""
    plain = _AT.sub("", name.strip().lower())
    if plain in HIGHER:
        return True
    return False if plain in LOWER else None
