"""Objects that steps create, read and written with the rights of an account of their namespace.

They are looked at again and again, soon at first and then more seldom, instead of being watched: a watch would need one
more right of that account and a connection for each object, and would tell of it a few seconds earlier.
"""
