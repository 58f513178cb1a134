"""One file computed by several processes, on one node or many: ranks, shares, and the file that they write together."""
