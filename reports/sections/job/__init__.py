"""The report of a job of days, predicted; its folder is `reports.job`."""
