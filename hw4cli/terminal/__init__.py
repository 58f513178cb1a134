"""What the commands have in common: options, their values, tables and bars on a terminal."""
