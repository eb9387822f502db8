"""The demo: a small shop on Strandline whose processes are killed, and a proof that nothing was lost by it.

Writers append through the public API while a pipeline carries on Spark. Each keeps a plain ledger beside Strandline; at
the end an independent checker compares the ledgers with every journal and with the store's own rows.
"""

from strandline.demo.tour import ORDERS, run

__all__ = ["ORDERS", "run"]
