"""What `hw4 bench` does: kernels on cases of files, whole programs, attention of arrays; and what it prints."""
