"""The use case of a job of days: from a scenario and its step to goodput, time and money.

In it: the options and command (`command`), the model of the job (`model_of`), and its outcome (`outcome`). The
simulation of days is `sim.job`; its report is `reports.sections.job`, its page `reports.page.job`.
"""
