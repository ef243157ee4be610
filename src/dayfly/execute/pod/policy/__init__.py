"""The policy for pods that Dayfly creates: an allow-list of fields, at Pod Security level `restricted`.

A tenant or plugin author writes the pod template, but the operator creates the pod with its own rights. So every field
must have a row in `shape`, and `rules` checks what concerns several fields. Every accepted pod is also accepted by Pod
Security admission; the tests compare them. `stored_pod` checks the pod again after the admission webhooks of the
cluster, before its gate is removed.

Pure and total: the functions accept any JSON value and raise nothing.
"""

from dayfly.execute.pod.policy.object_references import Reference, references
from dayfly.execute.pod.policy.rules import Level, PodTerms, Violation, check, describe
from dayfly.execute.pod.policy.stored_pod import find_changes

__all__ = ["Level", "PodTerms", "Reference", "Violation", "check", "describe", "find_changes", "references"]
