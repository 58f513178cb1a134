"""What pages, pictures and the package show of the records: `make results`."""
