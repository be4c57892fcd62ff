"""What a job costs at sizes that no machine here has: measured parts, and a model that is made of them."""
