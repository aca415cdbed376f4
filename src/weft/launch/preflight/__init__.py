"""Find out what would go wrong before any worker starts.

    report = check("host1,host2")
    if not report.ok:
        print(render_report(report))

`scout.py` asks the hosts, `judge.py` concludes, `report.py` prints. A new check is one function in `hostchecks.py` or
`netchecks.py` and one line in `judge.py`.
"""

from weft.launch.preflight.report import PreflightReport, render_report, render_troubles
from weft.launch.preflight.scout import check, check_before_run, progress_on, require_ok

__all__ = [
    "PreflightReport",
    "check",
    "check_before_run",
    "progress_on",
    "render_report",
    "render_troubles",
    "require_ok",
]
