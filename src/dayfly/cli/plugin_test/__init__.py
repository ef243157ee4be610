"""`dayfly plugin test`: plays the lives of a plugin on this machine or in a cluster and reports what was left behind.

The lives and the judgement are in `dayfly.testing`, which is pure; here is what they need of the world.
"""
