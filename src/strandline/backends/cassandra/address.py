"""The keyspace and parameters of a `cassandra://` URL, checked before anything is opened.

cassandra://USER:PASSWORD@HOST:PORT,HOST/KEYSPACE
    ?replication=3          replicas in each data centre, of a keyspace that is created
    &datacenter=NAME        where to read and write; that of the first host if it is left out
    &tls=on|off             on, unless every host is this machine
    &cafile=&certfile=&keyfile=
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from strandline.errors import invalid, unusable_files
from strandline.urls import Url, is_loopback

REPLICAS_DEFAULT: Final = 3
REPLICAS_MOST: Final = 15
_KEYSPACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")


def check_url(url: Url) -> None:
    """Raise `InvalidInput` for a URL with wrong or contradictory parts."""
    if not _KEYSPACE.fullmatch(url.name):
        allowed = "a keyspace of letters, digits and _, at most 48, a letter first"
        raise invalid("url_incomplete", "store", "no name of a keyspace", allowed=allowed, got=url.name)
    if url.parameters.get("tls", "on") not in ("on", "off"):
        raise invalid("url_parameter", "store", "tls", allowed="on or off", got=url.parameters["tls"])
    replicas_given(url)


def replicas_given(url: Url) -> int:
    """Return how many replicas a new keyspace gets."""
    text = url.parameters.get("replication", str(REPLICAS_DEFAULT))
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= REPLICAS_MOST):
        raise invalid("url_parameter", "store", "replication", allowed=f"1..{REPLICAS_MOST}", got=text)
    return int(text)


def wants_tls(url: Url) -> bool:
    """Return whether to use TLS: yes, unless every host is this machine, or the URL says otherwise."""
    here = all(is_loopback(host.name) for host in url.hosts)
    return url.parameters.get("tls", "off" if here else "on") == "on"


def tls_of(url: Url) -> ssl.SSLContext | None:
    """Return the TLS context, which checks names; None where TLS is not wanted."""
    if not wants_tls(url):
        return None
    try:
        context = ssl.create_default_context(cafile=url.parameters.get("cafile"))
        if certificate := url.parameters.get("certfile"):
            context.load_cert_chain(certificate, url.parameters.get("keyfile"))
    except OSError as error:  # this includes OpenSSL's error for a file that holds no certificate
        files = {name: url.parameters[name] for name in ("cafile", "certfile", "keyfile") if name in url.parameters}
        raise unusable_files(files, error.strerror or str(error)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
