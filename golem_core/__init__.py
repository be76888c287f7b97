"""The engine: formats, programs, executors, state, text, sampling, scheduling. No HTTP here."""
