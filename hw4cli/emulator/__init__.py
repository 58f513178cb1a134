"""CUDA kernels executed on the CPU: compiled by a C++ compiler, run thread by thread, and checked as they run."""
