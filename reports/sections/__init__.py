"""What reports show, once for the terminal, pages and JSON: sections as data, made from frames.

Here are the sections of each report in their order; not here is how they are shown (`reports.terminal.render`,
`reports.page.render`, `reports.json_document`), nor what pages draw (`reports.page`), which sections name.
"""
