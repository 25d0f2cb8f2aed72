"""
Not one admission call lost: Services are written without a pause while kavip is rolled, evicted, rotated and killed.

writer    the writes, and what came of each: a process of its own, in the control plane's network
metrics   the counters: what the API server itself counted of its webhooks
disturb   what happens to kavip meanwhile
course    one after the other, each with its share of the writes; the table
"""
