"""What users see: tables, the progress of a run, plans in words."""
