"""The tutorial proves itself: its commands run on a real cluster, and their output is what the page shows.

pages   the commands of a page, and the output that it shows for each
alike   whether a command has printed what a page shows, apart from ages, random names and the like
run     runs the commands of a page on a cluster
"""
