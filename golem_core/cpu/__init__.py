"""The CPU executor: programs compiled to records that C walks on all cores."""

from golem_core.cpu.executor import CpuExecutor, PassCancelled, features
from golem_core.cpu.weights import WeightStore

__all__ = ["CpuExecutor", "PassCancelled", "WeightStore", "features"]
