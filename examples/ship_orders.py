"""A shop that ships its orders: a journal records what happened, a work journal hands out what is to be done.

Every order that is placed adds a piece of work under the order's key: placed again while it waits, it is still one.
Workers ship; the append that says so has the claim's id, so a worker that dies after it and before `done` ships nothing
twice: whoever gets the entry next appends the same again, which is stored once.

    python examples/ship_orders.py sqlite:shop 20
"""

from __future__ import annotations

import sys
from threading import Thread

import strandline
from strandline import Event, Key, WorkDeclaration, Worker
from strandline.work.claims import Claim

SHIPPING = WorkDeclaration("shipping", key={"order": "text"}, data={"city": "text"}, lease_s=30, max_timeouts=5)


def main(url: str = "sqlite:shop", orders: int = 20) -> int:
    """Place so many orders, ship them with four at a time, and count what the journal says."""
    with strandline.connect(url) as s:
        shipping = s.work(SHIPPING)

        def ship(claim: Claim) -> None:
            order, city = claim.entry.key["order"], claim.entry.data["city"]
            s.journal.append(Key("order", order), [Event("Shipped", {"to": city})], append_id=claim.append_id)

        worker = Worker(s, {"shipping": ship}, concurrency=4)
        working = Thread(target=worker.run)
        working.start()
        for number in range(1, orders + 1):
            s.journal.append(Key("order", str(number)), [Event("Placed", {"total": 10 * number})])
            for city in ("Bergen", "Oslo"):  # the customer changed her mind
                shipping.add(key={"order": str(number)}, data={"city": city})
        while any(shipping.counts()[:4]):
            shipping.wait(0.05)
        worker.stop()
        working.join()
        shipped = 0
        for number in range(1, orders + 1):
            events = list(s.journal.read(Key("order", str(number))))
            shipped += any(event.type == "Shipped" and event.payload["to"] == "Oslo" for event in events)
    print(f"{shipped} of {orders} orders shipped to Oslo")
    return 0 if shipped == orders else 1


if __name__ == "__main__":
    place, count, *_ = [*sys.argv[1:], *("sqlite:shop", "20")[len(sys.argv) - 1 :]]
    sys.exit(main(place, int(count)))
