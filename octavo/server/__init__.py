"""The HTTP front end: wire formats to and from the neutral request. Knows no tensors, no blocks."""
