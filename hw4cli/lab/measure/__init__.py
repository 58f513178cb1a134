"""What a kernel should take of a GPU, by a model, and what it takes, by a profiler's counters."""
