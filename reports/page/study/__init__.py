"""The page of a study: Python writes the data, scripts in the page draw the points."""
