"""Units of kind acquire: stand-ins for the steps of a pool member or shared parent, and its release. Pure.

A host passes the ledgers of the holder and of the member. `acquisition` finds the units and the template in a document,
`facts` derives the facts of a turn, and `members` the state of a member and the moves of a holder.
"""
