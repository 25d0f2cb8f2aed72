"""Helpers that tests of several packages share: builders of objects, manifests of this repository, RBAC, OpenAPI."""
