"""A leaderboard: submissions on a workload and a GPU, how they are measured, kept, ranked and shown."""
