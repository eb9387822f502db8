"""Certificates for tests, made by openssl while they run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from strandline.errors import Unavailable

_NEW = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


class Signed(NamedTuple):
    """A certificate with its key, as PEM files."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates that whoever trusts `certificate` trusts."""

    name: ClassVar[str] = "openssl"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate, self._key = folder / "authority.pem", folder / "authority.key"

    def start(self) -> Self:
        """`Unavailable` where there is no openssl."""
        _run(*_NEW, "-subj", "/CN=authority", "-keyout", self._key, "-out", self.certificate)
        return self

    def signed(self, name: str, known_as: str = "DNS:nobody") -> Signed:
        """A new certificate for a server that is `known_as`, or for a client."""
        made = Signed(*(self._folder / f"{name}.{kind}" for kind in ("pem", "key", "both")))
        signer = ("-CA", self.certificate, "-CAkey", self._key)
        says = ("-addext", f"subjectAltName={known_as}", "-addext", "basicConstraints=critical,CA:FALSE")
        _run(*_NEW, "-subj", f"/CN={name}", *signer, *says, "-keyout", made.key, "-out", made.certificate)
        made.both.write_text(made.key.read_text() + made.certificate.read_text() + self.certificate.read_text())
        return made


def _run(*words: str | Path) -> None:
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise Unavailable("there is no openssl here", code="away", hint="apt install openssl") from None
    if done.returncode != 0:
        told = " / ".join(done.stderr.splitlines()[-3:])
        raise Unavailable(f"openssl failed: {told}", code="away", hint="openssl 3 or newer is needed")
