"""How costs grow with sizes, and the law that each must keep."""
