"""The chart, with a real helm: what it renders, and what becomes of it on a real API server."""
