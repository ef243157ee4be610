"""`dayfly mcp`: the tools of coding agents over the Model Context Protocol. It needs the extra `mcp`."""
