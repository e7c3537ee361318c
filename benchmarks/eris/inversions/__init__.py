"""Images from what is sent of a gradient: by the share that is seen, and by method."""
