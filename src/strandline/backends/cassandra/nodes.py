"""Nodes with names for TLS: a node is reached at an address, but its certificate is checked for the name in the URL.

The driver works with addresses alone: it looks names up and forgets them, and learns of other nodes from the cluster,
which has no names. So the certificate of a node that the URL does not name must have its address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any

from cassandra.connection import DefaultEndPoint, DefaultEndPointFactory


class NamedNode(DefaultEndPoint):  # type: ignore[misc]
    """A node with a name. It equals the driver's node at the same address, from whatever source the driver has that."""

    def __init__(self, address: str, port: int, name: str) -> None:
        super().__init__(address, port)
        self._name = name

    @property
    def ssl_options(self) -> dict[str, str]:
        return {"server_hostname": self._name}


class NamedNodes(DefaultEndPointFactory):  # type: ignore[misc]
    """Gives names to the nodes that the driver learns of from the cluster, if the URL names them."""

    def __init__(self, named: Iterable[NamedNode], port: int) -> None:
        super().__init__(port)
        self._named = {node: node for node in named}

    def create(self, row: Mapping[str, Any]) -> DefaultEndPoint:
        found = super().create(row)
        return self._named.get(found, found)


def named_nodes(places: Iterable[tuple[str, int]]) -> list[NamedNode]:
    """Return the nodes at these names and ports: one for each address of a name."""
    found: dict[NamedNode, None] = {}
    for name, port in places:
        try:
            addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except OSError:
            continue
        for *_, address in addresses:
            found.setdefault(NamedNode(str(address[0]), port, name))
    return list(found)
