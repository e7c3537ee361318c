"""The web explorer: pages that show what the API answers. They compute nothing of their own."""
