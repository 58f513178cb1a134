"""Pictures and pages from records: what was measured, to be looked at."""
