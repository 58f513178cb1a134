"""Text, dates, tables and pages for people: as wide as the terminal, safe to show."""
