"""What metrics are computed with: the versions of these packages are part of a score stage's key."""

from __future__ import annotations

MAUVE_PACKAGES = ("mauve-text", "faiss-cpu", "scikit-learn")


def rouge_packages(*, stemming: bool) -> tuple[str, ...]:
    """Return what ROUGE is computed with; the stemmer is nltk's."""
    return ("rouge-score", "nltk") if stemming else ("rouge-score",)
