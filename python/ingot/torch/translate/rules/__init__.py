"""The rules, a file for each family of operators."""
