"""Reporting from a worker: `weft.log` for numbers and `weft.report` for progress, at a microsecond or two a call.

A call appends to a list. A thread in the background writes what has gathered ten times a second, to a file of the run
directory, or on another host to its agent, which passes it on to the launcher; see `channels.py`. Training never waits
for any of that, and a service that is down is none of a worker's business.
"""
