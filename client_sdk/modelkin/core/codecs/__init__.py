"""Binary forms of supports, deltas, signatures and sketches."""
