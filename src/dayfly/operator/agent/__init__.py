"""This cluster as a host of a server, which the operator connects to over `link`."""
