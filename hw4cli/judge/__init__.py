"""Judging: one program on a case, a session of all cases, a class's submissions."""
