"""The modelkin service: it keeps supports and signatures and answers which models are kin."""
