"""The assignment's rules in numbers."""

TOLERANCE = 5e-3  # the largest error of a right element
KILL_AFTER = 10.0  # seconds past the limit
POINTS, POINTS_PER_CASE = 60, 3
PENALTY = 60.0  # seconds a case that is not accepted; the course does not publish its own
