"""The documents that users write: their types, parsing and checks.

Text becomes plain data with positions (`parsing`), then a typed document that has passed every check that needs no
other document (`documents.load`). `lifecycle` is the compiled document, `run` the ledger, and `schema` generates
CRDs, JSON Schemas and the reference from the types. The package is pure and imports no other package of Dayfly; every
package may import it. Each fault is a `SpecError` with its position.
"""
