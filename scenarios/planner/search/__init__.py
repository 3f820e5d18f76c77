"""What the planner tries: the ways to shard each table (`enumerator`), and the proposals made of them."""
