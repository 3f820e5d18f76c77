"""Pages of runs and comparisons: one HTML file each, which needs no network, from the runs' frames.

Bokeh draws and Jinja2 lays out; both are loaded only where a page is made.
"""
