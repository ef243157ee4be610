"""What people and machines say to each other: wishes as frozen data, read from text with a place in every error.

Text (YAML or JSON) becomes plain data with marks (`text`), templates are filled in (`template`), and the result becomes
a `Plugin`, a `Sandbox` or a `Workload` (`documents.load`), checked by every rule that needs no second document: names
and paths (`names`), versions (`semver`), steps, inputs, hooks. What needs two documents at once (unknown references,
cycles) is the business of `compile`; the document that `compile` makes of them is `lifecycle`.

Pure: no clock, files, processes, environment, logging or chance; a reader of embedded files is handed in. Every fault
is a `SpecError`. All rooms may call this one; it calls none of ours. `errors` and `names` import neither YAML nor
msgspec, because the command line counts its milliseconds; for the same reason nothing is imported here.
"""
