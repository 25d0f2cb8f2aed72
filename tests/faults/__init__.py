"""The judge of histories under faults, judged; and a short history."""
