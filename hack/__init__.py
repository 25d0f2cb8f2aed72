"""Tools for those who work on kavip; nothing here is part of it."""
