"""The objects whose lives runs accompany: how a run is born beside its target, what its owner wants, how both end."""
