"""Large model support: train to a byte budget.

    from weft import lms

    with lms.fit(limit="20GB"):
        loss = model(batch).sum()
        loss.backward()

`recording.py` is what a step did; `planner.py` decides what to keep, rebuild or swap and `timeline.py` plays it through;
`engine.py` carries it out over a transfer (`cuda.py`, or `simulated.py` with no device); `session.py` ties them together.
torch is loaded when the first name is used.
"""
