"""MinHash signatures, coordinate sketches and banding."""
