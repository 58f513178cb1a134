"""What makes the records: `python -m benchmarks.measure GPU RECORD...`."""
