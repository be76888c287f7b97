"""Many conversations, one model: slots, passes, and the thread that owns the weights.

The interface, as a server uses it (every method may be called from any thread)::

    engine = Engine(model, queue=256, cache_ttl=0.0, default_length=1024,
                    queue_timeout=0.0, request_timeout=0.0, draft="off", checkpoints=3)
    engine.start()                      # starts the runner thread; importing starts nothing
    with engine.entering():             # optional: "a request is on its way", so that a pass
        ...tokenise...                  #   about to start may wait for it (2 ms at most)
        job = engine.submit(Request(tokens, params=..., stop=[...], max_tokens=...))
        jobs = engine.submit_all([...]) # several, all or none; one prompt is read once
    # submit raises ContextExceeded, QueueFull, EngineClosed, ParamError (field, message)

    while steps := job.steps(timeout=0.1):   # list[Step]; None on time-out, [] at the end
        for step in steps: step.text, step.token, step.count, step.whole, step.probs, step.end
    job.result      # Result: counts, times, finish_reason, timings(), text, tokens
    job.wait(0.1)   # unstreamed: the Result, or None on time-out; raises the job's error
    job.cancel()    # frees the slot within a pass; job.result.finish_reason == "cancelled"
    job.state, job.slot, job.progress   # QUEUED / READING / DRAWING / DONE; prompt progress

    engine.slots    # list[SlotState]: one snapshot each
    engine.stats    # Stats: plain counters
    engine.records  # Records: the last answers in numbers
    engine.erase(i) # forgets what an idle slot holds
    engine.close()  # running and waiting jobs fail with EngineClosed; the thread has ended

``steps`` and ``wait`` raise PassFailed when the pass a job took part in failed (ModelChanged;
NonFiniteLogits as its cause), or only this answer did (DeadEnd: its grammar lets no token follow,
or gave up);
QueueTimeout when no slot came free in time, RequestTimeout when the answer took too long: the
steps drawn until then are read first, and what was computed stays in the slot.
Several answers to one prompt are several jobs with seeds seed+1, ….
"""

from golem_core.sample import Probs
from golem_core.schedule.energy import Energy
from golem_core.schedule.engine import Engine
from golem_core.schedule.errors import (
    ContextExceeded,
    DeadEnd,
    EngineClosed,
    ModelChanged,
    PassFailed,
    QueueFull,
    QueueTimeout,
    RequestTimeout,
    ScheduleError,
    TimedOut,
)
from golem_core.schedule.records import Record, Records
from golem_core.schedule.request import Job, Progress, Request, Result, State, Step, timings
from golem_core.schedule.slots import SlotState
from golem_core.schedule.stats import Stats
from golem_core.schedule.thought import Thinking

__all__ = [
    "ContextExceeded",
    "DeadEnd",
    "Energy",
    "Engine",
    "EngineClosed",
    "Job",
    "ModelChanged",
    "PassFailed",
    "Probs",
    "Progress",
    "QueueFull",
    "QueueTimeout",
    "Record",
    "Records",
    "Request",
    "RequestTimeout",
    "Result",
    "ScheduleError",
    "SlotState",
    "State",
    "Stats",
    "Step",
    "Thinking",
    "TimedOut",
    "timings",
]
