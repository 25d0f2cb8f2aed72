"""
Two real controllers under faults, judged by the API server's audit log alone.

facts     the audit log: who made which version of which Service or pool, in the order in which it happened
rules     the few rules of addresses that a judge must know, in its own words: nothing of kavip is imported
checker   replays the facts: two holders, moves without cause, needless writes, who waits in vain
history   what users do meanwhile: Services and pools created, edited and deleted, by a seed
replicas  two `kavip controller` processes, and what happens to them
course    one history: create, edit under faults, wait until kavip is idle, check; the table
"""
