"""Training algorithms, one file each; every one is a step function in the order and names of its paper."""
