"""Objects that steps create, read and written with the permissions of a ServiceAccount of their namespace.

The operator polls these objects, first often and then less often. A watch would require another permission of that
account and a connection for each object, and would only report changes a few seconds earlier.
"""
