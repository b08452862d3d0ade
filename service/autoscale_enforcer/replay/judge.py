"""The judge: one verdict for each answer, which may rest on what was answered for the pod before.

Pure, and independent of the service's own rules: it knows what kube-scheduler can work with.
"""

from __future__ import annotations

from autoscale_enforcer.replay.asked import (
    Asked,
    BindAsked,
    FilterAsked,
    PreemptAsked,
    PrioritizeAsked,
    ReserveAsked,
    UnreadableError,
)
from autoscale_enforcer.replay.judge_nodes import judge_filter, judge_prioritize
from autoscale_enforcer.replay.judge_pods import judge_bind, judge_preempt, judge_reserve
from autoscale_enforcer.replay.recording import Call
from autoscale_enforcer.replay.verdict import Answer, NoAnswer, Verdict


class Judge:
    """Judges the answers of one recording in their order."""

    def __init__(self) -> None:
        self._passed: dict[str, frozenset[str]] = {}
        """What the last filter passed, by pod, until its bind: memory for waiting pods only."""

    def judge(self, call: Call, answer: Answer | NoAnswer) -> Verdict:
        """What the answer came to."""
        if isinstance(call.asked, FilterAsked):
            # Whatever comes back, an earlier answer for this pod no longer counts.
            self._passed[call.asked.pod.uid] = frozenset()
        if isinstance(answer, NoAnswer):
            return Verdict(disagreements=[f"no answer: {answer.reason}"])
        try:
            return self._judge_answer(call.asked, answer)
        except UnreadableError as error:
            return Verdict(disagreements=[str(error)], refused=answer.status != 200)

    def _judge_answer(self, asked: Asked, answer: Answer) -> Verdict:
        match asked:
            case FilterAsked():
                verdict = judge_filter(asked, answer)
                self._passed[asked.pod.uid] = verdict.passed
                return verdict
            case PrioritizeAsked():
                return judge_prioritize(asked, answer)
            case PreemptAsked():
                return judge_preempt(asked, answer)
            case BindAsked():
                return judge_bind(asked, answer, self._passed.pop(asked.pod.uid, None))
            case ReserveAsked():
                return judge_reserve(asked, answer)
