"""Which pods may Dayfly create? The merged pod held to an allow-list of fields, at Pod Security `restricted`.

The overlay is a tenant's or a plugin author's; what comes of it runs with the operator's word. So nothing is searched
for: every field of the pod has a row in `shape` or is refused, and `rules` say what one field's shape cannot. What
passes is a subset of what Kubernetes' own Pod Security admission passes (the tests ask it). `stored` looks at the pod
again after the cluster's webhooks had their turn, before it is let go.

Pure and total: any JSON value may be given, nothing is raised. Called by the operator with what `render` made.
"""

from dayfly.execute.pod.policy.reading import Reference, references
from dayfly.execute.pod.policy.rules import Level, PodTerms, Violation, check, described
from dayfly.execute.pod.policy.stored import restored

__all__ = ["Level", "PodTerms", "Reference", "Violation", "check", "described", "references", "restored"]
