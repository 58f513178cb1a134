// Nothing: what uses it is refused by its names (refusals.py).
