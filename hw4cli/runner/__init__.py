"""One program that strangers wrote, run confined: a private folder, a sandbox, limits, Slurm."""
