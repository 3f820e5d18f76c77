"""Compare a predicted run with a measured one: match their spans, and compute the error of each part."""
