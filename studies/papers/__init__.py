"""Three papers, element by element: where each is, its figure, and ours."""
