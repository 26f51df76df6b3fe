"""The ops: one record each, in families. A file per family; everything else is derived from the records."""
