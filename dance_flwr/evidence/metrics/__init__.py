"""Metrics of evidence: faithfulness, interventions, effects of single chunks."""
