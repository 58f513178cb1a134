"""A kernel as one file to hand in: its text, what it needs of the headers, and a program around it."""
