"""How similar the programs of a class are: tokens, passages that two have in common, pairs."""
