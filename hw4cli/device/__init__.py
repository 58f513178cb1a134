"""The GPU through cupy: open, compile, cache, launch, time."""
