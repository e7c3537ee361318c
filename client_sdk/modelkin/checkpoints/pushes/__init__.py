"""What is sent of checkpoints: how one is read, and which ones a folder and a manifest name."""
