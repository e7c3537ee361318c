"""What operators do, and what a service does for them: commands, copies, maintenance, metrics."""
