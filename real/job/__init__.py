"""A scenario's job on real ranks: checkpoints, killed ranks and hosts, torch's elastic restart, and a journal of it.

The package has kills (`kills`), the processes of a host (`agent`) and of a rank (`rank`), their launcher (`launcher`),
the journal that these processes write (`journal`), and the lost time by that journal (`timeline`).
`twinstep.real_jobs` compares the lost time with predictions.
"""
