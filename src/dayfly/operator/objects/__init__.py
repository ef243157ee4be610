"""Objects that steps make, seen and made with the rights of an account of the target's namespace.

They are looked at again and again, soon at first and then more seldom, instead of being watched: a watch would need one
more right of that account and a connection for each object, and would tell of it a few seconds earlier.
"""
