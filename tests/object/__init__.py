"""Objects: what is written and refused, what is made of it, what is read of it, and what may be made by nobody."""
