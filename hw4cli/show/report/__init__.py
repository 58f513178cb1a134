"""A report from records: a text that hw4 and its author write together, and the pages made of it."""
