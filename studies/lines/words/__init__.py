"""What is said of derivatives in the words of hubs, beside what was done."""
