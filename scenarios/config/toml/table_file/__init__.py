"""Tables of a recommender from a CSV or Parquet file, and entries that stand for several tables alike."""
