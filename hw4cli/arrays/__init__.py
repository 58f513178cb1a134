"""Attention for arrays: of 16 or 32 bits, with heads, causal, on the GPU where they are or on the CPU."""
