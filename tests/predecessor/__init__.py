"""What users of keepalived-operator have, and what comes of it: the acceptance checks, and the table in docs/."""
