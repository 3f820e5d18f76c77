"""gloo: its algorithms as scripts of messages, and the time that these take over TCP."""
