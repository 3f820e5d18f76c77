"""The final output of `twinstep calibrate`: the report of its measurements, then the profile's path."""

from __future__ import annotations

import argparse
from dataclasses import replace

from reports.sections.calibration import CALIBRATION, CalibrationView
from reports.terminal.present import print_report


def tell(view: CalibrationView, options: argparse.Namespace) -> None:
    """Print the report and the path of the profile `options.out`: as JSON, as text, or `quiet` the path alone."""
    if options.json or not options.quiet:
        data = {"profile": str(options.out), **view.data}
        print_report(CALIBRATION, replace(view, data=data), as_json=options.json)
    if not options.json:
        print(options.out)
