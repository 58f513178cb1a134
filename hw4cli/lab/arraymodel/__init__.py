"""What kernels for arrays should take of a GPU, by a model, and the process in which a profiler watches them."""
