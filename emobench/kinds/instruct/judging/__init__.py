"""Judges: language models that compare two responses to an instruction, or give one a grade."""
