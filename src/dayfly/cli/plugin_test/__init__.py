"""`dayfly plugin test`: plays the scenarios of `testing` on this machine or in a cluster.

The lives and the judgement are in `dayfly.testing`, which is pure; here is what they need of the world.
"""
