"""Real results for the site."""
