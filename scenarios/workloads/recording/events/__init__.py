"""Events of a rank: its requests and computation, each a frozen value and one line of a recording; no torch.

The event's type decides who answers a script's request (`script/program`, `script/recording/single_rank`,
`real/script/link`). Programs other than scripts have those of `tasks`, and calls as scripts have them.
"""
