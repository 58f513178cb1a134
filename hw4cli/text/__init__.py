"""Words, dates, tables and pages for people: printable, as wide as the terminal, safe to show."""
