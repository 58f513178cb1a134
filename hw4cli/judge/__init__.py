"""Judging: one program on a case, a session of all cases, the submissions of a class."""
