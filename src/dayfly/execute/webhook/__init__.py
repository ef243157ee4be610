"""Webhooks: one request to a server, sent by Dayfly's sender program, which runs like a step.

The host uses `render`, which turns the unit into an exec unit that runs the sender, and `read`, which explains the
sender's exit code. The other modules are the sender. It is a separate process that imports no other part of Dayfly
except `execute.log_masks`:

- `request`: the request
- `address_policy`: the addresses that the sender may connect to
- `http_exchange`: sends the request and reads the response
- `response_values`: values from the response
- `sender`: retries, `find` and `poll`
- `exit_codes`: the exit codes, which both sides use
"""
