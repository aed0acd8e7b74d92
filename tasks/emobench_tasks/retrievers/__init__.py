"""The built-in retrievers of in-context examples: one file, one retriever."""
