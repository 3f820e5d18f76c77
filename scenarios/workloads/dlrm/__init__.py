"""The recommender: its dense part, its sparse part over TorchRec's exchanges, pipelines, memory and checks.

Ids are drawn in `ids`, rows are looked up and updated in `tables`; planner and exchange have packages of their own.
"""
