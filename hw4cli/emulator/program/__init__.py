"""Whole CUDA programs on the CPU: kernels and the host's code that launches them, compiled, executed and watched."""
