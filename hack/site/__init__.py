"""The site of the documentation, built with Sphinx by ``make docs``: its pages, their order, and a check of it."""
