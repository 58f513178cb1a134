"""Kernels as data: launch plans, the variants, bounds of their errors, and the dispatch between them."""
