"""What an engine has done since its start, as plain numbers."""

from dataclasses import astuple, dataclass, replace

from golem_core.schedule.passes import Pass
from golem_core.schedule.request import Result


@dataclass
class Stats:
    """Counters since the start; written by the runner, read by anyone."""

    submitted: int = 0
    refused: int = 0  # the queue was full
    finished: int = 0
    cancelled: int = 0
    timed_out: int = 0  # while waiting or running; these count as failed too
    failed: int = 0
    passes: int = 0
    columns: int = 0
    prompt_columns: int = 0  # prompt tokens fed
    drawn_columns: int = 0  # drawn tokens fed, drafts included
    drawn: int = 0  # tokens drawn
    drafts: int = 0  # passes of an answer that tokens were guessed for
    drafted: int = 0  # tokens guessed and fed before they were drawn
    accepted: int = 0  # of those, the ones that were then drawn
    probs: int = 0  # tokens drawn whose probabilities were computed
    prompt_probs: int = 0  # prompt tokens whose probabilities were computed
    cached: int = 0  # prompt tokens found in a slot
    restored: int = 0  # checkpoints taken up
    brought: int = 0  # conversations brought back from the host's memory
    stored_bytes: int = 0  # now: of conversations in the host's memory
    busy_slots: int = 0  # summed over passes
    longest: int = 0  # most tokens a slot has held
    prompt_seconds: float = 0.0  # from slot to first token, summed over answers
    draw_seconds: float = 0.0  # from first to last token, summed over answers
    pass_seconds: float = 0.0
    vocabularies: int = 0  # read for grammars: 0 until somebody asks for one
    waiting: int = 0  # now: requests without a slot
    running: int = 0  # now: requests with one

    def __add__(self, other: "Stats") -> "Stats":
        """Both together, as one engine would have counted them."""
        joined = Stats(
            *(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True))
        )
        joined.longest = max(self.longest, other.longest)
        return joined

    def over(self) -> "Stats":
        """What remains of the counts of an engine that has ended: nothing is running now."""
        return replace(self, waiting=0, running=0, stored_bytes=0)

    def passed(self, batch: Pass, running: int, seconds: float) -> None:
        """A pass ran."""
        drawn = batch.drawn
        self.passes += 1
        self.columns += batch.columns
        self.prompt_columns += batch.columns - drawn
        self.drawn_columns += drawn
        self.busy_slots += running
        self.pass_seconds += seconds

    def ended(self, result: Result) -> None:
        """An answer ended."""
        reason = result.finish_reason
        self.cancelled += reason == "cancelled"
        self.failed += reason == "error"
        self.finished += reason not in ("cancelled", "error")
        self.prompt_seconds += result.prompt_ms / 1e3
        self.draw_seconds += result.draw_ms / 1e3
        self.longest = max(self.longest, result.slot_tokens)
        self.drafts += result.drafts
        self.drafted += result.drafted_tokens
        self.accepted += result.accepted_tokens
