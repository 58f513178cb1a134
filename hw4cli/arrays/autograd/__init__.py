"""Attention as an operator of PyTorch, with its gradients."""
