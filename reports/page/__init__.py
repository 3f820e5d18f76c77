"""Pages of runs and comparisons, from the runs' frames: one HTML file each, which needs no network.

Bokeh draws and Jinja2 lays out; both are loaded only to make a page.
"""

# The folder of a run's report, in the run's folder, and the name of its page.
FOLDER = "reports"
PAGE_FILE = "report.html"
