"""The chart with a real helm: its rendering, and its life on a real API server."""
