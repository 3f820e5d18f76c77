"""Pages of runs and comparisons: one HTML file each, which needs no network, from the runs' frames.

Bokeh draws and Jinja2 lays out; both are loaded only where a page is made.
"""

# Where the report of a run lies, in the run's folder, and its page there.
FOLDER = "reports"
PAGE_FILE = "report.html"
