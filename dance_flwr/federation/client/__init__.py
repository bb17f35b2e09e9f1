"""The client's side: message -> task -> reply."""
