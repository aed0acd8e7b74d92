"""Data: corpora and their sources, texts with a fingerprint, rows for training, and the oracle language."""
