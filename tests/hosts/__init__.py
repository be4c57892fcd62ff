"""Jobs on a cluster of hosts that can be cut off: `make hosts`, as root, part of the nightly runs and not of `make test`.

Processes of one machine share its kernel, which closes their connections when they die: there no host ever *vanishes*. So a Spark
master, two workers and two drivers run here as hosts of their own: each is a network namespace with an address of 10.77.0.0/24
and a host name, joined by a bridge in a namespace of its own. Nothing of that network is visible outside, and all of it is gone
afterwards. They share the disk, as hosts share a filesystem: a host whose link is down can still reach the job folder, which
makes fencing harder, not easier.

Each scenario runs the job of `tests.chaos` (out-of-order records, running counts, windows, late records, three exact sinks), does
something to its hosts, proves that it happened, and compares the output with the reference of `tests.chaos.verify`, which knows
nothing of Penstock: lost = duplicated = 0, or the run fails. The table says how long the job stood still.

    python -m tests.hosts                    # everything, about 20 minutes
    python -m tests.hosts vanishes cut-20s   # some scenarios
    python -m tests.hosts --mode pipelined   # the job on Spark's pipelined shuffle
    python -m tests.hosts --write FILE.md    # keep the table

`network.py` makes and cuts links, `cluster.py` runs processes on hosts, `scenarios.py` is what is done to them.
"""
