"""The page of a study: Python gives the data, scripts in the page draw the points."""
