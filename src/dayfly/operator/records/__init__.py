"""Records of resources whose runs have ended, and the key of `DAYFLY_RESOURCE_TOKEN`, in the operator's namespace."""
