"""
No admission call is lost: Services are written without a pause while kavip is rolled, evicted, rotated and killed.

writer        the writes and their results: a process of its own, in the control plane's network
metrics       the API server's own counters of webhook calls
disturb       the disturbances of kavip
endurancerun  runs the disturbances in sequence, assigns the writes to them, prints the table
"""
