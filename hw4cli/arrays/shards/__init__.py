"""Attention of arrays that lie in parts on several GPUs, and its gradients."""
