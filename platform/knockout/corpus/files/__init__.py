"""Files on this machine or elsewhere, and the rows that are read from them."""
