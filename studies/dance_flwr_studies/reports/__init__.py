"""From rows to tables, figures and tests of significance."""
