"""Shared by the commands: options, their values, tables and bars on a terminal."""
