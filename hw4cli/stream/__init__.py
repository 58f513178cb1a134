"""From file to file: the pipeline, its devices and its timeline."""
