"""Entries for other tools, and other tools' results as entries: lm-evaluation-harness, Hugging Face, tables."""
