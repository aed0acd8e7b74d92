"""The chunked linear engine: hidden states and head to loss and gradients, in PyTorch and in Triton."""
