"""Every part against a model: random programs, run on a real back-end and on plain Python, compared call by call.

    strandline prove journal --seeds 1000 --on sqlite

A program (`program.py`) is a list of calls and of events of the world, as plain data. A part (`journal.py`,
`queries.py`, `projections.py`, `work.py`) makes programs from seeds and runs them: each call goes to the product and to
the model (`model.py`). That was written from `docs/spec` and shares no code with the product. What a user would see
must be the same, and at the end the tables must hold nothing else. A program that shows a difference is made smaller
(`shrink.py`) and printed as a command that runs it again.
"""
