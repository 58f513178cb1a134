"""Gradients of attention: dQ, dK and dV, the same bits in every run."""
