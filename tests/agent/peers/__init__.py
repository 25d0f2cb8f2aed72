"""The nodes of a static group."""
