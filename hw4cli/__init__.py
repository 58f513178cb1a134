"""hw4: FlashAttention forward on a GPU, from file to file, with its judge and its laboratory."""

__version__ = "0.1.0"
