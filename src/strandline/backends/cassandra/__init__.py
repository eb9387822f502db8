"""Cassandra: how a cluster is reached, checked, and given a schema. The store is built on this.

`Session` is the one place that touches the driver: statements by name, many in flight at a time, time-outs everywhere,
and the driver's errors in our own words.
"""

from strandline.backends.cassandra.schema import describe_keyspace, open_keyspace, upgrade_keyspace
from strandline.backends.cassandra.session import CqlRequest, Session

__all__ = ["CqlRequest", "Session", "describe_keyspace", "open_keyspace", "upgrade_keyspace"]
