"""Steps as processes of one machine, started and outlived by the runner.

`render` makes the runner's work order, `execute.receipt` reads what it leaves, `place` says where a home's attempts
work, `run` owns the attempt's folder there: order, marker (started, or void: whoever links it first wins), lock (held
while anything of the step lives), log, receipt.
"""
