"""Which kernel and which tile were fastest on this GPU, as `hw4 tune` found and kept them."""
