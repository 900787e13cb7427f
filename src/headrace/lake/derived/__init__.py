"""Tables made of a lake's changes for those who read tables: current and zipper tables, kept up by what is new."""
