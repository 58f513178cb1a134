"""The laboratory: benchmarks, comparisons with others, tests on random inputs."""
