"""Memory between passes: what programs declare, and the arrays that executors read and write."""

from golem_core.state.declare import Matrix, Ring, State, Window
from golem_core.state.states import RingArrays, StateError, States

__all__ = ["Matrix", "Ring", "RingArrays", "State", "StateError", "States", "Window"]
