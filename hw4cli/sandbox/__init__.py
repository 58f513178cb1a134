"""Runs one untrusted program: a private folder, a sandbox, resource limits, the GPU lock, Slurm."""
