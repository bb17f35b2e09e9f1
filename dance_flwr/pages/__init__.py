"""Pages for a browser: self-contained HTML files that make no network requests."""
