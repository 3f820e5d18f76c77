"""The recommender: its dense part, its sparse part over TorchRec's exchanges, pipelines, memory and checks.

`ids` draws ids, `tables` looks up and updates rows; planner and exchange are packages of their own.
"""
