"""Models: which one a name means, its files and identity, loading it whole, and its LM head."""
