"""Write the lock files of servers anew, after their versions were changed: fetches, then keeps what came.

    python tools/lock_jars.py kafka cassandra

Compare with what the projects publish before you commit: whoever uses the lock file trusts it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from strandline.servers import jars


def main(names: list[str]) -> int:
    for name in names or sorted(jars.LIBRARIES):
        library = jars.LIBRARIES[name]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "jars"
            jars.fetch(library, folder)
            lines = [f"{digest}  {file}\n" for file, digest in jars.digests(folder).items()]
        library.lock_path.write_text("".join(lines), encoding="ascii")
        sys.stdout.write(f"{name}: {len(lines)} files\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
