"""The chunked linear engine: from hidden states and head to loss and gradients, in PyTorch and in Triton."""
