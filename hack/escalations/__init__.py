"""
Attempts to escalate with the tokens of kavip's accounts, at a real API server with the chart.

account   one account: its token, and requests that are dry runs
stage     the cluster: the chart with its lists set, a group with its objects, and objects of other programs
attempt   what an attempt is: it differs in one thing from a request of kavip, and names what must refuse it
attempts  the requests of kavip, and all attempts: with DaemonSets (daemonsets), other objects of groups (groupobjects),
          and others (otherobjects)
attemptrun  makes the attempts, and removes the bindings of the policies one by one
"""
