"""What a machine has and lacks for hw4."""
