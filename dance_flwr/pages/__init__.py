"""What is looked at in a browser: pages of one file each, which never ask for another."""
