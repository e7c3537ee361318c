"""What is kept: SQL for the truth, files for the supports. No HTTP and no similarity."""
