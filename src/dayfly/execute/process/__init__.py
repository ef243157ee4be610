"""Steps as processes of one machine, which the runner starts and supervises.

- `render`: the runner's work order
- `attempt_storage`: the work folder of a home
- `run`: the folder of an attempt. It has the order, the marker (`started` or `void`; the first link wins), the lock
  (held while any process of the step runs), the log and the receipt
- `step_folders`: the working directories of steps
- `launch`, `resident`: start runners, as processes or in containers

`execute.receipt` reads the receipts.
"""
