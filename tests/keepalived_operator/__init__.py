"""What users of keepalived-operator rely on: the acceptance checks, and the table in docs/."""
