"""
Two real controllers under faults, checked by the API server's audit log alone.

facts     the audit log: the user of each version of each Service or pool, in order
rules     the rules of addresses that the checker needs, without imports from kavip
checker   replays the facts: two holders, moves without cause, needless writes, Services that wait for a free address
history   the writes of simulated users: Services and pools are created, edited and deleted, by a seed
replicas  two `kavip controller` processes, and the faults injected into them
faultrun  runs one history: create, edit under faults, wait until kavip is idle, check; the table
"""
