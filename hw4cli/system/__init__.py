"""The operating system: files, processes and their ends, signals, users, the GPUs that the machine has."""
