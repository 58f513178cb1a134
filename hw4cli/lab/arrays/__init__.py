"""Attention of arrays, measured: inputs of a workload, ours and others' attention, checks, times."""
