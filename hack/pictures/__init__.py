"""Pictures of the documentation: SVG from texts below docs/pictures, written by ``make reference``.

Own code: Graphviz and D2 place texts by the fonts of the machine, so their output differs from one to the next;
Mermaid needs a browser. A picture here has fixed places, is a few kilobytes, and follows the light or dark scheme of
its reader.
"""
