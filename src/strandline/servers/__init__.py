"""Real servers for tests and for trying things: fetched, started on loopback, stopped; no container, no root.

    with PostgresServer() as postgres:            # a folder of its own, gone afterwards
        strandline.connect(postgres.database("shop"))

    postgres.kill()                               # kill -9
    postgres.restart()                            # the same folder, the same address

None of them outlives the process that started it, however that one ends. They are for one machine and for data that
may be lost: nobody is asked for a password, so nothing but loopback and sockets of this user is listened on.
"""
