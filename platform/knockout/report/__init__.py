"""What a reader sees of a study: tables, charts, one self-contained HTML page, and tables for a terminal.

The invariant: every figure is a table that can be computed again from the runs' own files by a public
function of `figures`; drawing adds nothing to it. Nothing is imported here, so that a terminal table never
waits for matplotlib.
"""
