"""The planner's search: sharding options of each table (`enumerator`), and proposals made of them."""
