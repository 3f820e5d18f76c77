"""A scenario's job on real ranks: checkpoints, killed ranks and hosts, torch's elastic restart, and a journal of it.

In it: kills (`kills`), the processes of a host (`agent`) and of a rank (`rank`), their launcher (`launcher`), the
journal that all of them write (`journal`), and what it says of lost time (`timeline`). Not in it: predictions, with
which `twinstep.real_jobs` compares.
"""
