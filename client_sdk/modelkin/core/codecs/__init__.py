"""Binary forms of supports, patches, signatures and sketches."""
