"""What produces demonstrations, tables and figures. These modules may print; the library below them may not."""
